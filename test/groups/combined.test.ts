import { type Job, Queue } from 'bullmq'
import { expect, test } from 'vitest'
import type { Feedback } from '../../src/feedback/feedback.ts'
import type { FeedbackChange, QueueLimit, ShapedJob } from '../../src/index.ts'
import { ears, said, Told } from '../feedback/support/told.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, rounding, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const { connection, prefix } = redis

const tokens: QueueLimit = { name: 'tokens', by: 'group', unit: 'tokens', rate: '200/s', burst: 10 }

/** Jobs of two groups and of none, each of two tokens. */
function bulk(count: number, more: object = {}) {
  return Array.from({ length: count }, (_, i) => {
    const group = ['a', 'b', ''][i % 3] as string
    const priority = (i * 7) % 5
    const opts = group === '' ? { priority } : { group: { id: group, priority } }
    return { name: group, data: {}, opts: { costs: { tokens: 2 }, ...opts, ...more } }
  })
}

test('with limits per group and ageing, every job runs within the limit of its group, whatever happens', async () => {
  const queue = shop.queue({ rate: '1000/s', groups: { concurrency: 4 }, limits: [tokens], priorityAgeingMs: 50 })
  const stock = shop.keep(new Queue(queue.name, { connection, prefix }))
  const run = async ({ attemptsMade, opts }: Job) => {
    if (opts.attempts === 2 && attemptsMade === 0) throw new Error('once')
  }
  await queue.addBulk(bulk(90))
  await queue.addBulk(bulk(12, { attempts: 2 }))
  await queue.addBulk(bulk(12, { attempts: 2, backoff: 20 }))
  await stock.addBulk(bulk(30))
  const removed = (await queue.addBulk(bulk(9))).map(({ id }) => id as string)
  for (const id of removed) await stock.remove(id)
  const workers = [1, 2, 3].map(() => shop.worker(queue, run, { concurrency: 8 }))
  const departed = departuresOf(...workers)
  const completed = eventsOf('completed', ...workers)
  await departed.reach(15)
  await queue.pauseGroup('a')
  await workers[0]!.close()
  await queue.setShape({ priorityAgeingMs: null }, { by: 'test', reason: 'test' })
  await departed.reach(30)
  await queue.resumeGroup('a')
  await queue.setShape({ priorityAgeingMs: 1 }, { by: 'test', reason: 'test' })
  await queue.pause()
  await queue.resume()
  await completed.reach(144)
  expect(departed.all).toHaveLength(168)
  for (const name of ['a', 'b', '']) {
    const slots = departed.all.filter((one) => one.name === name).map(({ departureTimeUs }) => departureTimeUs)
    expect(slots).toHaveLength(56)
    // A job is two tokens: five at once, then one each 10 ms.
    expect(excess(slots, 10_000, 5)).toBeLessThanOrEqual(rounding(10_000))
  }
  await expect.poll(() => client.keys(`${queue.toKey('meta')}:group:jobs:*`)).toEqual([])
  const lines = ['ready', 'limited', 'full', 'paused', 'stale', 'held'].map((name) =>
    queue.toKey(`meta:groups:${name}`),
  )
  await expect.poll(() => client.exists(...lines)).toBe(0)
  for (const key of await client.keys(`${queue.toKey('meta')}:group:*`)) {
    expect(await client.pttl(key), key).not.toBe(-1)
  }
  await Promise.all(workers.map((worker) => worker.close()))
  await queue.obliterate()
  expect(await client.keys(queue.toKey('*'))).toEqual([])
})

test('feedback about a group, with its rate, limits and ageing: it waits, and nothing is above its bound', async () => {
  const rate = { rate: '100/s', burst: 2 }
  const queue = shop.queue({ groups: { ...rate, concurrency: 3 }, limits: [tokens], priorityAgeingMs: 50 })
  await queue.addBulk(bulk(90))
  const pause = { ...said, scope: 'group', kind: 'pause', forMs: 300, hard: true } as unknown as Feedback
  let answered = 0
  const run = async (job: ShapedJob) => {
    if (job.name === 'a' && ++answered % 8 === 4) throw new Told(pause)
    await job.settleCost({ tokens: answered % 3 })
  }
  const workers = [1, 2].map(() => shop.worker(queue, run as never, { concurrency: 8, feedback: ears }))
  const departed = departuresOf(...workers)
  const changes = eventsOf<FeedbackChange>('feedback', ...workers)
  await eventsOf('completed', ...workers).reach(90)
  const slotsOf = (group: string) =>
    departed.all
      .flatMap(({ name, departureTimeUs }) => (name === group ? [departureTimeUs] : []))
      .toSorted((a, b) => a - b)
  for (const group of ['a', 'b']) {
    expect(excess(slotsOf(group), 10_000, 2)).toBeLessThanOrEqual(rounding(10_000))
  }
  // A slot that was granted before the answer came may lie behind it, by no more than a horizon.
  const holds = changes.all.flatMap(({ kind, until }) => (kind === 'pause' && until ? [until.getTime() * 1000] : []))
  expect(holds.length).toBeGreaterThan(1)
  for (const untilUs of holds) {
    const within = slotsOf('a').filter((us) => us > untilUs - 300_000 + 60_000 && us < untilUs)
    expect(within).toEqual([])
  }
  const longest = (slots: readonly number[]) => Math.max(...slots.slice(1).map((us, i) => us - (slots[i] as number)))
  expect(longest(slotsOf('a'))).toBeGreaterThanOrEqual(240_000)
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 0, active: 0 })
})
