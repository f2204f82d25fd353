import { expect, test } from 'vitest'
import { UncertainClockError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, eventsOf, excess, jobs, rounding, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** Keeps this process from doing anything else, as a processor that computes does. */
function block(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}

test('jobs that are late for their slots go back to the head in order, and compete again', async () => {
  const queue = shop.queue({ rate: '20/s', horizonMs: 300, maxLatenessMs: 100 })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async (job) => (job.name === 'job0' ? block(500) : undefined), { concurrency: 10 })
  const [calls, departed, late] = [callsOf(worker), departuresOf(worker), eventsOf('late', worker)]
  const lateness: number[] = []
  worker.on('late', (_job, { latenessUs, clockErrorUs }) => lateness.push(latenessUs + clockErrorUs))
  await calls.reach(1)
  await queue.addBulk(jobs(10))
  await departed.reach(10)
  expect(departed.all.map(({ name }) => name)).toEqual(jobs(10).map(({ name }) => name))
  // Those that were held while job0 blocked: their slots were 50, 100, … 300 ms after its own.
  expect(late.all.length).toBeGreaterThan(0)
  expect(Math.min(...lateness)).toBeGreaterThan(100_000)
  expect(late.all[0]!.data).toEqual({ i: 1 })
  const starts = departed.all.map(({ departedAtUs }) => departedAtUs)
  expect(excess(starts, 50_000, 1, 100_000)).toBeLessThanOrEqual(rounding(50_000))
  for (const { latenessUs } of departed.all) expect(latenessUs).toBeLessThanOrEqual(101_000)
})

test('a job that went back counts as never started', async () => {
  const queue = shop.queue({ rate: '20/s', horizonMs: 300, maxLatenessMs: 100 })
  await queue.waitUntilReady()
  const attempts: number[] = []
  const worker = shop.worker(
    queue,
    async (job) => {
      attempts.push(job.attemptsStarted)
      if (job.name === 'job0') block(500)
    },
    { concurrency: 10 },
  )
  const [calls, late, completed] = [callsOf(worker), eventsOf('late', worker), eventsOf('completed', worker)]
  await calls.reach(1)
  await queue.addBulk(jobs(6))
  await completed.reach(6)
  expect(late.all.length).toBeGreaterThan(0)
  expect(attempts).toEqual([1, 1, 1, 1, 1, 1])
})

test('a late job whose lock another worker has is dropped silently', async () => {
  const queue = shop.queue({ rate: '20/s', horizonMs: 300, maxLatenessMs: 100 })
  await queue.waitUntilReady()
  const client = redis.client()
  let stolen: Promise<unknown> | undefined
  const worker = shop.worker(
    queue,
    async (job) => {
      if (job.name !== 'job0') return
      // The command is sent when the processor is left; Redis has it before the late job is given back.
      stolen = client.set(queue.toKey('taken:lock'), 'of another worker')
      await stolen
      block(500)
    },
    { concurrency: 10 },
  )
  const [calls, late, completed] = [callsOf(worker), eventsOf('late', worker), eventsOf('completed', worker)]
  const errors = eventsOf<Error>('error', worker)
  await calls.reach(1)
  await queue.addBulk([{ name: 'job0', data: {} }, { name: 'job1', data: {}, opts: { jobId: 'taken' } }, ...jobs(2)])
  await completed.reach(3)
  expect(late.all.map(({ id }) => id)).toContain('taken')
  expect(await client.lrange(queue.toKey('active'), '0', '-1')).toEqual(['taken'])
  expect(await client.get(queue.toKey('taken:lock'))).toBe('of another worker')
  // On a busy machine the clock may not be known well enough.
  expect(errors.all.filter((error) => !(error instanceof UncertainClockError))).toEqual([])
})

test('a processor that blocks 300 ms with concurrency 10 completes every job, and the bound holds', async () => {
  const queue = shop.queue({ rate: '20/s' })
  await queue.addBulk(jobs(12))
  const worker = shop.worker(queue, async () => block(300), { concurrency: 10 })
  const [departed, completed] = [departuresOf(worker), eventsOf('completed', worker)]
  await completed.reach(12)
  expect(new Set(completed.all.map(({ id }) => id)).size).toBe(12)
  expect(completed.all.every(({ attemptsStarted }) => attemptsStarted === 1)).toBe(true)
  const departures = departed.all
  expect(departures.length).toBe(12)
  const [slots, starts] = [departures.map((d) => d.departureTimeUs), departures.map((d) => d.departedAtUs)]
  expect(excess(slots, 50_000)).toBeLessThanOrEqual(rounding(50_000))
  expect(excess(starts, 50_000, 1, 100_000)).toBeLessThanOrEqual(rounding(50_000))
  expect(departures.every(({ latenessUs }) => latenessUs >= 0 && latenessUs <= 101_000)).toBe(true)
})

test('jobs that are due at the same moment: a processor that blocks makes the others late, and they go back', async () => {
  const queue = shop.queue({ rate: '100/s', burst: 20, maxLatenessMs: 100 })
  await queue.waitUntilReady()
  const attempts: number[] = []
  const worker = shop.worker(
    queue,
    async (job) => {
      attempts.push(job.attemptsStarted)
      block(150)
    },
    { concurrency: 20 },
  )
  const [calls, departed, late] = [callsOf(worker), departuresOf(worker), eventsOf('late', worker)]
  const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  const errors = eventsOf<Error>('error', worker)
  await calls.reach(1)
  await queue.addBulk(jobs(20))
  await completed.reach(20)
  expect(late.all.length).toBeGreaterThan(19)
  expect(departed.all.map(({ name }) => name)).toEqual(jobs(20).map(({ name }) => name))
  for (const { latenessUs } of departed.all) expect(latenessUs).toBeLessThanOrEqual(101_000)
  expect(attempts).toEqual(Array(20).fill(1))
  expect(failed.all).toEqual([])
  // On a busy machine the clock may not be known well enough.
  expect(errors.all.filter((error) => !(error instanceof UncertainClockError))).toEqual([])
  // Once it is plain that they come late, they are asked for one by one.
  expect(calls.all.filter(({ request }) => request.jobs === 1).length).toBeGreaterThan(10)
})

// No window ends during the test.
const RATE = { limit: 3, period: 1000 * 86_400_000 } as const
const DAYS = { name: 'days', algorithm: 'fixed-window', rate: RATE } as const

test.each([
  ['per queue', [DAYS]],
  ['per group', [{ ...DAYS, by: 'group' }]],
  ['of a log', [{ name: 'days', algorithm: 'sliding-window-log', rate: '3/day' }]],
  ['of a bucket', [{ name: 'days', algorithm: 'gcra', rate: '3/day', burst: 3 }]],
] as const)('a processor that computes takes no unit of a day from the others: a limit %s', async (kind, limits) => {
  const queue = shop.queue({ groups: {}, limits })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => block(150), { concurrency: 3 })
  const [calls, completed, late] = [callsOf(worker), eventsOf('completed', worker), eventsOf('late', worker)]
  await calls.reach(1)
  await queue.addBulk(jobs(4).map((job) => ({ ...job, opts: { group: { id: 'acme' } } })))
  await completed.reach(3)
  // In a window at a time of its own, a late start is as good as any.
  if (kind === 'per queue' || kind === 'per group') expect(late.all).toEqual([])
  else expect(late.all.length).toBeGreaterThan(0)
  expect((await queue.meter()).nextDepartureAt?.getTime()).toBeGreaterThan(Date.now() + 60_000)
})
