import { expect, test } from 'vitest'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, excess, jobs, rounding, type Seen, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const processes = useProcesses()

/** None before its slot by this machine's wall clock, which Redis reads too; none above the bound. */
function expectPaced(departures: readonly Omit<Seen, 'name'>[], intervalUs: number, burst = 1): void {
  const slots = departures.map(({ departureTimeUs }) => departureTimeUs)
  const starts = departures.map(({ departedAtUs }) => departedAtUs)
  const latest = Math.max(...departures.map(({ latenessUs }) => latenessUs))
  expect(excess(slots, intervalUs, burst)).toBeLessThanOrEqual(rounding(intervalUs))
  expect(excess(starts, intervalUs, burst, latest)).toBeLessThanOrEqual(rounding(intervalUs))
  expect(departures.filter(({ departedAtUs, departureTimeUs }) => departedAtUs < departureTimeUs)).toEqual([])
  expect(departures.filter(({ wallMs, departureTimeUs }) => (wallMs + 1) * 1000 < departureTimeUs)).toEqual([])
}

test('two workers of one process share one rate, and no job starts before its slot', async () => {
  const queue = shop.queue({ rate: '200/s' })
  await queue.addBulk(jobs(80))
  const workers = [1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 10 }))
  const departed = departuresOf(...workers)
  const departures = await departed.reach(80)
  expectPaced(departures, 5000)
  expect(new Set(departures.map(({ id }) => id)).size).toBe(80)
  // Under a backlog no slot is left out, but for what a busy machine loses now and then.
  const slots = departures.map(({ departureTimeUs }) => departureTimeUs).sort((a, b) => a - b)
  const gaps = slots.slice(1).map((slot, i) => slot - slots[i]!)
  expect(Math.abs(gaps.sort((a, b) => a - b)[39]! - 5000)).toBeLessThanOrEqual(1)
})

test('two processes share one rate', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.addBulk(jobs(60))
  type Message = { type: 'ready' } | ({ type: 'departed' } & Seen)
  const args = [queue.name, redis.prefix, JSON.stringify(redis.connection), '5']
  const script = new URL('./programs/paced-worker.ts', import.meta.url)
  const programs = [1, 2].map(() => processes.fork<Message>(script, { args }))
  await Promise.all(programs.map((program) => program.waitFor('ready')))
  const events = shop.queueEvents(queue)
  await events.waitUntilReady()
  const completed = eventsOf<unknown>('completed', events)
  for (const program of programs) program.send('run')
  await completed.reach(60)
  const exits = await Promise.all(programs.map((program) => program.kill('SIGTERM')))
  const seen: Seen[] = []
  for (const { messages } of programs) for (const m of messages) if (m.type === 'departed') seen.push(m)
  expect(exits.map(({ code }) => code)).toEqual([0, 0])
  expect(new Set(seen.map(({ id }) => id)).size).toBe(60)
  expect(programs.every(({ messages }) => messages.some(({ type }) => type === 'departed'))).toBe(true)
  expectPaced(seen, 10_000)
})

test('burst leaves back to back, then the rate holds', async () => {
  const queue = shop.queue({ rate: '50/s', burst: 5 })
  await queue.addBulk(jobs(12))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 20 }))
  const departures = await departed.reach(12)
  expectPaced(departures, 20_000, 5)
  const slots = departures.map(({ departureTimeUs }) => departureTimeUs)
  expect(slots[4]! - slots[0]!).toBeLessThan(20_000)
  expect(slots[5]! - slots[0]!).toBeGreaterThanOrEqual(19_999)
})

test('a job of cost 3 takes the slots of three', async () => {
  const queue = shop.queue({ rate: '100/s', burst: 3 })
  await queue.addBulk([...jobs(4, { cost: 3 }), ...jobs(3)])
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 10 }))
  const slots = (await departed.reach(7)).map(({ departureTimeUs }) => departureTimeUs)
  for (const i of [1, 2, 3]) expect(slots[i]! - slots[i - 1]!).toBeGreaterThanOrEqual(29_999)
  // Units, not jobs, obey the bucket.
  const units = slots.flatMap((slot, i) => Array<number>(i < 4 ? 3 : 1).fill(slot))
  expect(excess(units, 10_000, 3)).toBeLessThanOrEqual(rounding(10_000))
})

test('one call brings as many jobs as there are places', async () => {
  const queue = shop.queue({ rate: '1000/s', burst: 8 })
  await queue.addBulk(jobs(8))
  const worker = shop.worker(queue, async () => {}, { concurrency: 6, autorun: false })
  const calls = callsOf(worker)
  void worker.run()
  await eventsOf('completed', worker).reach(8)
  expect(calls.all[0]?.request.jobs).toBe(6)
  expect(calls.all[0]?.reply.grants.length).toBe(6)
})

test('nothing is granted further ahead than the horizon', async () => {
  const queue = shop.queue({ rate: '20/s', horizonMs: 120, maxLatenessMs: 60_000 })
  await queue.addBulk(jobs(15))
  const worker = shop.worker(queue, async () => {}, { concurrency: 15, autorun: false })
  const calls = callsOf(worker)
  void worker.run()
  await departuresOf(worker).reach(15)
  const ahead = calls.all.flatMap(({ request, reply }) =>
    reply.grants.map(({ slotUs }) => slotUs - reply.nowUs! - request.horizonUs),
  )
  expect(ahead.length).toBe(15)
  expect(Math.max(...ahead)).toBeLessThanOrEqual(1)
  // The first call does not know the shape yet; from then on the horizon is used.
  expect(calls.all.slice(1).every(({ request }) => request.horizonUs >= 120_000)).toBe(true)
  expect(Math.max(...ahead)).toBeGreaterThan(-70_000)
})

test('a retry is charged again', async () => {
  const queue = shop.queue({ rate: '50/s' })
  let failures = 0
  const worker = shop.worker(
    queue,
    async () => {
      failures += 1
      if (failures <= 3) throw new Error('not yet')
    },
    { concurrency: 5 },
  )
  const departed = departuresOf(worker)
  await queue.add('a', {}, { attempts: 4 })
  const slots = (await departed.reach(4)).map(({ departureTimeUs }) => departureTimeUs)
  expect(new Set(departed.all.map(({ id }) => id)).size).toBe(1)
  for (const i of [1, 2, 3]) expect(slots[i]! - slots[i - 1]!).toBeGreaterThanOrEqual(19_999)
})

test('a job that is only to be failed takes no slot', async () => {
  const queue = shop.queue({ rate: '1/min' })
  const client = redis.client()
  const [first, doomed, last] = await queue.addBulk(jobs(3))
  // BullMQ marks so a job whose child failed, or that stalled too often.
  await client.hset(queue.toKey(doomed!.id!), 'defa', 'its child failed')
  const worker = shop.worker(queue, async () => {}, { concurrency: 5, autorun: false })
  const [calls, departed, failed] = [callsOf(worker), departuresOf(worker), eventsOf('failed', worker)]
  void worker.run()
  await failed.reach(1)
  await asksUntil(calls, 'closed')
  expect(failed.all.map(({ id }) => id)).toEqual([doomed!.id])
  expect(departed.all.map(({ id }) => id)).toEqual([first!.id])
  // The next slot is one interval after the first job's, not two.
  const { reply } = calls.all.at(-1)!
  expect(reply.nextUs! - departed.all[0]!.departureTimeUs).toBeLessThanOrEqual(60_000_001)
  expect(await last!.getState()).toBe('waiting')
})
