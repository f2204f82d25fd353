import { afterAll, beforeAll, expect, test } from 'vitest'
import { profiles } from '../../../src/egress/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { eventsOf, jobs, Workshop } from '../../../test/worker/support.ts'
import { type EgressFetch, egressFetch } from '../../fetch/src/index.ts'
import { useServer } from '../../fetch/test/server.ts'
import { createHttpProcessor } from '../src/http/processor.ts'

// Fault table, row 30: the processor of the HTTP program, before a real server that asks to wait in every form, or goes
// away with the answer.
const JOBS = 4
const DAY_MS = 86_400_000
const HOUR_MS = 3_600_000

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const server = useServer()
let fetch: EgressFetch

beforeAll(() => {
  fetch = egressFetch({ targets: { here: { baseUrl: server.url } } })
})
afterAll(() => fetch.close())

const dateIn = (ms: number) => new Date(Date.now() + ms).toUTCString()

interface Case {
  readonly says: () => Record<string, string | string[]>
  /** How long nothing may be sent, ms; what is longer than a test lasts is read from the pause. */
  readonly atLeastMs: number
}

/** The dates are those of a server whose clock is an hour ahead. */
const CASES: Readonly<Record<string, Case>> = {
  seconds: { says: () => ({ 'retry-after': '1' }), atLeastMs: 1000 },
  date: { says: () => ({ 'retry-after': dateIn(HOUR_MS + 2000), date: dateIn(HOUR_MS) }), atLeastMs: 1000 },
  several: { says: () => ({ 'retry-after': ['2', '1'] }), atLeastMs: 2000 },
  negative: { says: () => ({ 'retry-after': '-5' }), atLeastMs: 0 },
  past: { says: () => ({ 'retry-after': dateIn(-HOUR_MS) }), atLeastMs: 0 },
  wrong: { says: () => ({ 'retry-after': 'soon' }), atLeastMs: 0 },
  huge: { says: () => ({ 'retry-after': '999999999999' }), atLeastMs: DAY_MS - 60_000 },
  'huge-date': { says: () => ({ 'retry-after': 'Fri, 31 Dec 9999 23:59:59 GMT' }), atLeastMs: DAY_MS - 60_000 },
}

test('as long as a 429 asks nothing is sent; then every job is sent once more at most, and none is lost', async () => {
  const sent: Record<string, number[]> = Object.fromEntries(Object.keys(CASES).map((name) => [name, []]))
  const answeredMs: Record<string, number> = {}
  server.answer((request, response) => {
    const name = request.url?.slice(1) as string
    const times = sent[name] as number[]
    times.push(performance.now())
    if (times.length > 1) return response.end('ok')
    const { says } = CASES[name] as Case
    for (const [field, value] of Object.entries(says())) response.setHeader(field, value)
    response.writeHead(429).end()
    answeredMs[name] = performance.now()
  })
  const runs = Object.entries(CASES).map(async ([name, { atLeastMs }]) => {
    const queue = shop.queue({ rate: '100/s' })
    await queue.addBulk(jobs(JOBS).map((job) => ({ ...job, data: { target: 'here', path: `/${name}` } })))
    // One at a time: what was under way beside the refused call would be no call after it.
    const worker = shop.worker(queue, createHttpProcessor(fetch) as never, { feedback: profiles.http, concurrency: 1 })
    const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
    if (atLeastMs > HOUR_MS) {
      await eventsOf('feedback', worker).reach(1)
      const untilMs = Number((await queue.meter()).pausedUntil)
      expect(untilMs - Date.now(), name).toBeGreaterThan(atLeastMs)
      expect(untilMs - Date.now(), name).toBeLessThan(DAY_MS + 60_000)
      expect(sent[name], name).toHaveLength(1)
      return
    }
    await completed.reach(JOBS)
    expect(failed.all, name).toEqual([])
    const [, second = 0] = sent[name] as number[]
    // The pause begins when the answer has arrived.
    expect(second - (answeredMs[name] as number), name).toBeGreaterThanOrEqual(atLeastMs - 1)
    expect(sent[name], name).toHaveLength(JOBS + 1)
  })
  await Promise.all(runs)
})

test('a server that goes away instead of an answer may have taken the call: it is repeated where the job may be tried again, with its key', async () => {
  for (const attempts of [1, 2]) {
    const path = `/gone-${attempts}`
    const keys: unknown[] = []
    server.answer((request, response) => {
      if (request.url !== path) return response.end('next')
      keys.push(request.headers['idempotency-key'])
      if (keys.length === 1) request.socket.destroy()
      else response.end('ok')
    })
    const queue = shop.queue({ rate: '100/s' })
    await queue.add('call', { target: 'here', path }, { attempts })
    const worker = shop.worker(queue, createHttpProcessor(fetch) as never, { feedback: profiles.http, concurrency: 1 })
    const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
    if (attempts === 1) {
      await failed.reach(1)
      // What runs after it shows that it was left.
      await queue.add('call', { target: 'here', path: '/next' })
    }
    await completed.reach(1)
    expect(failed.all).toHaveLength(2 - attempts)
    expect(keys).toEqual(Array(attempts).fill(expect.stringMatching(/^[\da-f]{64}$/)))
    expect(new Set(keys).size).toBe(1)
  }
})
