import fc from 'fast-check'
import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { type Shape, ShapedQueue, ShapedWorker } from '../../../src/index.ts'
import { type Explanation, type GroupDetail, Inspector, type QueueStatus } from '../../../src/inspect/index.ts'
import { useRedis } from '../../../test/support/redis.ts'

// What the page says of a queue agrees with itself, and with `explain` of the next job for the same moment.

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const RUNS = Number(process.env.TRUTH_RUNS ?? 25)

const WEB = new URL('../web/base/', import.meta.url)
const { feedbackText, holdSentence, holdThatLasts, nowSentence } = await import(new URL('hold-text.js', WEB).href)
const { concurrencyText, headAge, oldestText, rateNow } = await import(new URL('queue-text.js', WEB).href)

const GROUPS = ['a', 'b'] as const

/** A queue, what is in it and what was done with it. */
const STORIES = fc.record({
  rate: fc.constantFrom(undefined, '1/h', '20/min'),
  capacity: fc.constantFrom(undefined, 3, 100),
  concurrency: fc.constantFrom(undefined, 1, 3),
  limit: fc.constantFrom(undefined, '1/min', '100/s'),
  mode: fc.constantFrom('enforce' as const, 'enforce' as const, 'shadow' as const, 'off' as const),
  jobs: fc.array(
    fc.record({
      delay: fc.constantFrom(undefined, undefined, 1, 60_000),
      priority: fc.constantFrom(undefined, undefined, 1, 7),
      lifo: fc.constantFrom(undefined, true),
      group: fc.constantFrom(undefined, ...GROUPS),
      /** Fails at first, and is tried again: at once, or after a while. */
      retried: fc.constantFrom(undefined, undefined, 0, 60_000),
    }),
    { maxLength: 6 },
  ),
  groups: fc.constantFrom(undefined, {}, { rate: '1/min' }, { concurrency: 1 }, { rate: '20/min', concurrency: 1 }),
  groupPause: fc.constantFrom(undefined, undefined, ...GROUPS),
  works: fc.boolean(),
  feedback: fc.constantFrom('none' as const, 'slow' as const, 'pause' as const, 'concurrency' as const),
  pause: fc.constantFrom('none' as const, 'none' as const, 'queue' as const, 'meter' as const),
  laterMs: fc.integer({ min: 0, max: 90_000 }),
})
type Story = typeof STORIES extends fc.Arbitrary<infer S> ? S : never

/** What runs may still be in the line of its group. */
const RUNS_UNSEEN: Story = {
  ...{ rate: '1/h', capacity: 3, concurrency: undefined, limit: '100/s', mode: 'off', groups: { concurrency: 1 } },
  jobs: [
    { delay: 1, priority: 7, lifo: undefined, group: 'a', retried: 0 },
    { delay: 60_000, priority: undefined, lifo: true, group: undefined, retried: undefined },
  ],
  ...{ groupPause: undefined, works: true, feedback: 'concurrency', pause: 'meter', laterMs: 74_043 },
}

/** A client for which it is always this time, µs. */
function stopped(client: Redis, nowUs: number): Redis {
  const time = [String(Math.floor(nowUs / 1e6)), String(nowUs % 1e6)]
  const call = (name: string, ...args: (string | number)[]) => {
    if (name === 'time') return Promise.resolve(time)
    // The next to last argument of a view is the time of another server (lua/verbs/view.lua).
    if (/^eval(sha)?_ro$/.test(name)) args.splice(-2, 1, nowUs)
    return client.call(name, ...args)
  }
  return new Proxy(client, {
    get(target, key) {
      // Of a cluster, commands are sent one by one.
      if (key === 'isCluster') return true
      if (key === 'call') return call
      // Its clock must not count.
      if (key === 'nodes') return () => []
      const value = Reflect.get(target, key) as unknown
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** Workers that take what they may and are gone: what they started runs for ever. */
async function work(name: string, feedback: Story['feedback'], client: Redis): Promise<void> {
  const until = new AbortController()
  const worker = new ShapedWorker(
    name,
    async (job) => {
      if (job.opts.attempts === 2 && job.attemptsMade === 0) throw new Error('not yet')
      const rate = { limit: 1, period: 60_000 }
      if (feedback === 'slow') await job.feedback({ kind: 'slow', rate, ttlMs: 600_000, reason: '429' })
      if (feedback === 'concurrency')
        await job.feedback({ kind: 'concurrency', limit: 1, ttlMs: 600_000, reason: '429' })
      if (feedback === 'pause') await job.feedback({ kind: 'pause', forMs: 600_000, reason: '503' })
      await new Promise((resolve) => until.signal.addEventListener('abort', resolve))
    },
    { connection, prefix, concurrency: 4 },
  )
  worker.on('error', () => {})
  await expect.poll(() => client.hlen(`${prefix}:${name}:meta:workers`), { interval: 5 }).toBe(1)
  await worker.close(true)
  until.abort()
}

let stories = 0

/** Plays a story; the state of its queue, and why its next job waits, both at the same moment. */
async function played(story: Story, client: Redis) {
  stories += 1
  const { rate, capacity, concurrency, limit, mode, groups, works, feedback, pause, laterMs } = story
  const limits = limit === undefined ? {} : { limits: [{ name: 'api', rate: limit }] }
  const shape = Object.fromEntries(
    Object.entries({ rate, capacity, concurrency, mode, groups, ...limits }).filter(([, value]) => value !== undefined),
  ) as Shape
  const queue = new ShapedQueue(`q${stories}`, { connection, prefix, shape })
  await queue.getShape()
  for (const job of story.jobs) await queue.offer('job', {}, jobOptions(job, groups !== undefined))
  if (works) await work(queue.name, feedback, client)
  const who = { by: 'ada', reason: 'a test' }
  const [seconds, us] = (await client.time()) as unknown as [string, string]
  const nowUs = Number(seconds) * 1e6 + Number(us)
  if (pause === 'queue') await queue.pause(who)
  if (groups && story.groupPause) await queue.pauseGroup(story.groupPause, who)
  if (pause === 'meter') await queue.pauseUntil(nowUs / 1000 + 60_000, who)
  await queue.close()
  const inspector = new Inspector({ connection: stopped(client, nowUs + laterMs * 1000) as never, prefix })
  const [status] = await inspector.status([queue.name])
  const lists = await Promise.all(
    (['waiting', 'prioritized'] as const).map((state) => inspector.jobs(queue.name, state)),
  )
  const explained = await Promise.all(lists.flat().map(({ id }) => inspector.explain(queue.name, id)))
  const details = await Promise.all(story.groups ? GROUPS.map((id) => inspector.group(queue.name, id)) : [])
  return { status: status as QueueStatus, explained: explained as Explanation[], groups: details as GroupDetail[] }
}

function jobOptions({ delay, priority, lifo, group, retried }: Story['jobs'][number], hasGroups: boolean) {
  const terms = { ...(delay && { delay }), ...(retried !== undefined && { attempts: 2, backoff: retried }) }
  if (hasGroups && group) return { ...terms, group: { id: group } }
  return { ...terms, ...(priority ? { priority } : lifo && { lifo }) }
}

const wire = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T

/** What the page must not say beside each other. */
function checkPage(status: QueueStatus): void {
  const page = wire(status)
  const sentence = nowSentence(page) as string
  const isReady = status.waiting > 0
  expect([isReady, sentence]).toEqual([isReady, isReady ? expect.not.stringMatching(/^No job/) : sentence])
  if (isReady) expect(status.hold).toBeDefined()
  if (status.paused || status.pausedUntil) {
    expect(rateNow(page)).toBe('paused')
    expect(status.conditions).toContainEqual(expect.objectContaining({ name: 'Paused' }))
    if (isReady) expect(status.hold?.cause).toBe('pause')
  }
  if (status.pausedUntil && status.feedback?.last?.kind === 'pause') {
    expect(feedbackText(page)).not.toContain('nothing that holds')
  }
  const { concurrency, feedback } = status
  if (concurrency && feedback?.concurrency !== undefined && concurrency.inForce < (concurrency.set ?? 9)) {
    expect(concurrencyText(page)).toMatch(/declared, \d effective \(feedback/)
    expect(feedbackText(page)).toContain(`at most ${feedback.concurrency} job`)
  }
  expect(oldestText(page) === '' || (status.oldestAgeMs ?? 0) > (status.headAgeMs ?? 0)).toBe(true)
  expect(headAge(page) === '–').toBe(!isReady)
}

/** What the page says of the next job is what its explanation says. */
function checkHead(status: QueueStatus, explained: Explanation, mayBeRetried: boolean): void {
  expect(explained.at).toEqual(status.at)
  expect(explained.concurrency).toEqual(status.concurrency)
  const ageMs = status.headAgeMs as number
  if (mayBeRetried) {
    // Of a job that is tried again, the queue counts from its last start, the explanation from when it went back.
    expect(ageMs - explained.waitedMs).toBeGreaterThan(-1)
    expect([explained.hold?.cause, explained.hold?.limit]).toEqual([status.hold?.cause, status.hold?.limit])
    return
  }
  expect(explained.hold).toEqual(status.hold)
  // One counts in µs, the other in ms.
  expect(Math.abs(status.at.getTime() - explained.readyAt.getTime() - ageMs)).toBeLessThan(1)
  expect(Math.abs(explained.waitedMs - ageMs)).toBeLessThan(1)
  checkSentence(status, explained)
}

/** What the page of a group says where it is what holds the next job. */
const STATUS_OF: Readonly<Record<string, string>> = { pause: 'paused', concurrency: 'maxed', rate: 'limited' }

/**
 * The same where jobs have groups: the age and the time of the hold are those of the job at the front of the lists, and
 * the queue says that a group holds its next job once a worker has found so.
 */
function checkGroupedHead(status: QueueStatus, explained: Explanation, groups: readonly GroupDetail[]): void {
  expect(explained.at).toEqual(status.at)
  expect(explained.concurrency).toEqual(status.concurrency)
  const { group, cause, limit } = explained.hold as NonNullable<Explanation['hold']>
  if (group === undefined) expect([cause, limit]).toEqual([status.hold?.cause, status.hold?.limit])
  else expect(groups.find(({ id }) => id === group)?.status).toBe(STATUS_OF[cause])
}

function checkSentence(status: QueueStatus, explained: Explanation): void {
  const hold = status.hold as NonNullable<QueueStatus['hold']>
  expect(hold.since.getTime()).toBeGreaterThanOrEqual(explained.readyAt.getTime())
  expect(hold.since.getTime()).toBeLessThanOrEqual(status.at.getTime())
  if (holdThatLasts(wire(status))) {
    // The page adds how many workers there are.
    expect(nowSentence(wire(status))).toContain(holdSentence(wire(explained).hold).replace(/\.$/, ''))
  }
}

test('a page agrees with itself, and with why the next job waits', async () => {
  const client = redis.client()
  const property = fc.asyncProperty(STORIES, async (story) => {
    const { status, explained, groups } = await played(story, client)
    checkPage(status)
    const heads = explained.filter(({ ahead }) => ahead === 0)
    // Where groups are held, there may be none that leaves next.
    if (!story.groups) expect(heads).toHaveLength(status.waiting > 0 ? 1 : 0)
    for (const head of heads) {
      if (story.groups) checkGroupedHead(status, head, groups)
      else checkHead(status, head, story.works && story.jobs.some(({ retried }) => retried !== undefined))
    }
  })
  await fc.assert(property, { numRuns: RUNS, endOnFailure: true, examples: [[RUNS_UNSEEN]] })
})
