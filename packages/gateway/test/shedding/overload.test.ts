import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { QueueFullError } from '../../../../src/index.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { gate, Workshop } from '../../../../test/worker/support.ts'
import { inOrder } from '../../src/adapters/in-order.ts'
import { connectMiddleware } from '../../src/adapters/node.ts'
import type { HttpRequest, Middleware } from '../../src/middleware.ts'
import { fleetShedder } from '../../src/shedding/fleet-shedder.ts'
import { requestsInFlight } from '../../src/shedding/requests-in-flight.ts'
import { HeldClock } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const CLASSES = ['critical', 'default', 'sheddable'] as const
type Class = (typeof CLASSES)[number]
const classify = (request: HttpRequest) => request.header('x-class')
const key = (request: HttpRequest) => request.header('x-caller')

/** A server on loopback behind a shedder. */
async function serve(shedder: Middleware, handle: () => Promise<number>): Promise<string> {
  const guard = connectMiddleware(shedder)
  const server: Server = createServer((req, res) =>
    guard(req, res, (error) => {
      if (error) throw error
      handle().then((status) => res.writeHead(status).end())
    }),
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

async function post(url: string, trafficClass: Class, caller: string): Promise<Response> {
  const response = await fetch(url, { method: 'POST', headers: { 'x-class': trafficClass, 'x-caller': caller } })
  await response.arrayBuffer()
  return response
}

/** Statuses by class, how often each. */
type Tally = Record<Class, Record<number, number>>

function tallyOf(results: readonly (readonly [Class, number])[]): Tally {
  const tally: Tally = { critical: {}, default: {}, sheddable: {} }
  for (const [name, status] of results) tally[name][status] = (tally[name][status] ?? 0) + 1
  return tally
}

test('at ten times the capacity of a queue no critical request is refused while places are reserved for them', async () => {
  const queue = shop.queue({ capacity: 100, rate: '1/h' })
  // By a slow clock: what a request takes is forgotten after a second, which a busy machine may need for its response.
  const now = () => performance.now() / 20
  const shedder = fleetShedder({ queue, classify, key, intervalMs: 1, now })
  const url = await serve(shedder, async () => {
    try {
      await queue.add('job', {}, { removeOnComplete: true })
      return 202
    } catch (error) {
      return error instanceof QueueFullError ? 429 : 500
    }
  })
  // The first request has the queue read.
  while (shedder.seen.state === undefined) await (await fetch(url)).arrayBuffer()
  const before = await queue.count()
  const flood = Array.from({ length: 1000 }, (_, i) => (i % 50 === 0 ? 'critical' : i % 2 ? 'default' : 'sheddable'))
  const results: [Class, number][] = []
  const callers = Array.from({ length: 50 }, async (_, lane) => {
    for (let i = lane; i < flood.length; i += 50) {
      const name = flood[i] as Class
      results.push([name, (await post(url, name, `caller-${i % 97}`)).status])
    }
  })
  await Promise.all(callers)
  const tally = tallyOf(results)
  expect(tally.critical).toEqual({ 202: 20 })
  const admitted = (name: Class) => tally[name][202] ?? 0
  expect(admitted('default') + admitted('sheddable')).toBeLessThanOrEqual(80 - before)
  expect(admitted('sheddable')).toBeLessThanOrEqual(60)
  expect((tally.default[503] ?? 0) + (tally.sheddable[503] ?? 0)).toBe(
    980 - admitted('default') - admitted('sheddable'),
  )
  expect(await queue.count()).toBe(before + admitted('critical') + admitted('default') + admitted('sheddable'))
  expect(shedder.counts().critical?.refused).toBe(0)
})

test('at ten times the requests in flight no critical one is refused, and places of callers who go are free again', async () => {
  const inFlight = requestsInFlight({ max: 20, classify, key })
  const opened = gate()
  const url = await serve(inOrder([inFlight]), () => opened.opened.then(() => 200))
  const gone = new AbortController()
  const headers = { 'x-class': 'critical' }
  const leaving = Array.from({ length: 5 }, () => fetch(url, { headers, signal: gone.signal }).catch(() => 'gone'))
  while (inFlight.count < 5) await new Promise((resolve) => setImmediate(resolve))
  gone.abort()
  expect(await Promise.all(leaving)).toEqual(Array.from({ length: 5 }, () => 'gone'))
  while (inFlight.count > 0) await new Promise((resolve) => setImmediate(resolve))
  const flood = Array.from({ length: 196 }, (_, i) => post(url, i % 2 ? 'default' : 'sheddable', `caller-${i}`))
  const refused = () => inFlight.counts()
  while ((refused().default?.refused ?? 0) + (refused().sheddable?.refused ?? 0) < 180) {
    await new Promise((resolve) => setImmediate(resolve))
  }
  expect(inFlight.count).toBeLessThanOrEqual(16)
  const critical = Array.from({ length: 4 }, (_, i) => post(url, 'critical', `critical-${i}`))
  while ((refused().critical?.admitted ?? 0) < 9) await new Promise((resolve) => setImmediate(resolve))
  opened.open()
  expect((await Promise.all(critical)).map(({ status }) => status)).toEqual([200, 200, 200, 200])
  const answers = await Promise.all(flood)
  for (const answer of answers.filter(({ status }) => status === 503)) {
    expect(answer.headers.get('content-type')).toBe('application/problem+json')
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
  }
  expect(answers.filter(({ status }) => status === 200).length).toBe(
    inFlight.counts().default!.admitted + inFlight.counts().sheddable!.admitted,
  )
  while (inFlight.count > 0) await new Promise((resolve) => setImmediate(resolve))
})

test('the age of the head of a real queue moves the level', async () => {
  const queue = shop.queue({ rate: '1/h' })
  await queue.add('old', {}, { timestamp: Date.now() - 60_000 })
  const clock = new HeldClock()
  const shedder = fleetShedder({ queue, classify, now: clock.now, targetAgeMs: 50_000 })
  const url = await serve(shedder, async () => 200)
  clock.pass(500)
  while (shedder.level === 0) await post(url, 'critical', 'joe')
  expect(shedder.seen.state?.headAgeMs).toBeGreaterThan(59_000)
  expect(shedder.level).toBeCloseTo(0.25, 9)
})
