import { Job } from 'bullmq'
import { expect, test, vi } from 'vitest'
import { Departures } from '../../src/departure/exchange.ts'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, gate, Workshop, watchScripts } from './support.ts'

// However many jobs a worker runs at once, no script of it keeps Redis busy for long.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const limits = [{ name: 'open', rate: '1000000/s', burst: 1_000_000 }] as const
/** Each with the most jobs that one script starts and ends. */
const SHAPES = [
  ['nothing that holds its jobs', {}, 50, 50],
  ['a limit', { limits }, 46, 33],
  ['groups', { groups: {} }, 38, 29],
  [
    'all of them and ageing',
    { rate: '1000000/s', burst: 1_000_000, limits, groups: {}, priorityAgeingMs: 1000 },
    20,
    17,
  ],
] as const

/** How many jobs ended in each call, by the ids among its arguments. */
function endsOf(worker: ReturnType<typeof shop.worker>, ids: ReadonlySet<unknown>): number[] {
  const sizes: number[] = []
  void watchScripts(worker, (name, args) => {
    if (name.endsWith(':exchange')) sizes.push(args.filter((argument) => ids.has(argument)).length)
  })
  return sizes
}

test.each(SHAPES)('a worker of 240 on a queue with %s', async (_, shape, mostStarts, mostEnds) => {
  const queue = shop.queue(shape)
  const opts = 'groups' in shape ? { group: { id: 'a' } } : {}
  const added = await queue.addBulk(Array.from({ length: 480 }, () => ({ name: 'job', data: {}, opts })))
  const first = gate()
  let started = 0
  const worker = shop.worker(queue, async () => (++started <= 240 ? first.opened : undefined), { concurrency: 240 })
  const calls = callsOf(worker)
  const ends = endsOf(worker, new Set(added.map(({ id }) => id)))
  const departed = departuresOf(worker)
  await departed.reach(240)
  const starts = calls.all.map(({ reply }) => reply.grants.length)
  first.open()
  await departed.reach(480)
  expect(Math.max(...starts)).toBe(mostStarts)
  expect(Math.max(...ends)).toBe(mostEnds)
})

test.each([
  ['nothing holds', {}],
  ['a rate does not hold', { rate: '1000000/s', burst: 1_000_000 }],
  ['a limit does not hold', { limits }],
  ['neither a rate nor a limit holds', { rate: '1000000/s', burst: 1_000_000, limits }],
  ['a group does not hold', { groups: {} }],
] as const)('an end fetches a job that %s without the gate', async (_, shape) => {
  const queue = shop.queue(shape)
  const opts = 'groups' in shape ? { group: { id: 'a' } } : {}
  await queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'job', data: {}, opts })))
  const worker = shop.worker(queue, null, { autorun: false })
  const exchanged = vi.spyOn(Departures.prototype, 'exchange')
  let job: Job | undefined = await worker.getNextJob('token')
  while (job) {
    const [, next] = ((await job.moveToCompleted('done', 'token', true)) ?? []) as [unknown?, string?]
    job = next ? await Job.fromId(worker, next) : undefined
  }
  const replies = await Promise.all(exchanged.mock.results.map(({ value }) => value as Promise<unknown[]>))
  // The gate replies with three entries or more than nine. Once a second it looks for jobs that bypass the meter, and
  // it finds that no job is left.
  expect(replies.filter((reply) => reply.length === 9).length).toBeGreaterThan(10)
})
