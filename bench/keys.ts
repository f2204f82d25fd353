import { setTimeout as sleep } from 'node:timers/promises'
import type { JobsOptions, Queue } from 'bullmq'
import type { Shape } from 'sluice'
import { departuresOf, pausedQueue, ratesRow } from './groups.ts'
import { ALONE, type Bench, type Figure, type Row } from './harness/figure.ts'
import { addJobs, removeQueue } from './harness/queues.ts'
import { costOf } from './harness/redis.ts'
import { Team } from './harness/workers.ts'

/** Jobs have ids `<key>-<number>`. */
async function addOf(queue: Queue, count: number, keysOf: (i: number) => Record<string, string>): Promise<void> {
  await addJobs(queue, count, (i) => {
    const keys = keysOf(i)
    return { jobId: `${keys.model}-${i}`, keys } as JobsOptions
  })
}

async function rates(bench: Bench): Promise<Row> {
  const seconds = bench.quick ? 4 : 12
  const count = 100
  const limits: NonNullable<Shape['limits']> = [
    { name: 'rpm', by: 'model', rate: '5/s' },
    { name: 'pair', by: ['model', 'host'], rate: '1000/s', burst: 100 },
    { name: 'hosts', by: 'host', rate: '2000/s', burst: 100 },
  ]
  const queue = await pausedQueue(bench, 'keys-rate', { rate: '1000/s', limits, audit: 20_000 })
  await addOf(queue, count * 5 * (seconds + 3), (i) => ({ model: `m${i % count}`, host: `h${i % 3}` }))
  const left = await departuresOf(bench, queue, 4, count * 5 * seconds)
  const setup = `rate of each of 100 keys of 5/s, three limits a job, at a queue of 1000/s, 4 workers, over ${seconds} s`
  return ratesRow(setup, left)
}

/** What workers ask of Redis while all lanes wait for long. */
async function held(bench: Bench): Promise<Row> {
  const lanes = bench.quick ? 1000 : 10_000
  const queue = await pausedQueue(bench, 'keys-held', { limits: [{ name: 'daily', by: 'model', rate: '1/day' }] })
  await addOf(queue, 2 * lanes, (i) => ({ model: `m${i % lanes}` }))
  const team = await Team.open(bench, queue, { processes: 4, concurrency: 50, jobMs: 1 })
  await queue.resume()
  while ((await queue.getPrioritizedCount()) > lanes) await sleep(200)
  await sleep(2000)
  const seconds = bench.quick ? 5 : 15
  const { calls } = await costOf(bench.client, async () => {
    await sleep(seconds * 1000)
    return { units: seconds }
  })
  await team.close()
  await removeQueue(queue)
  return {
    setup: `calls of scripts a second, ${lanes.toLocaleString('en')} lanes that are held, 4 workers`,
    asked: '< 20',
    reached: calls.toFixed(1),
    ok: calls < 20,
    values: { calls },
  }
}

export const keys: readonly Figure[] = [
  { name: 'keys-rates', title: 'Keys: rates', headings: ALONE, run: async (bench) => [await rates(bench)] },
  { name: 'keys-held', title: 'Keys: lanes that are held', headings: ALONE, run: async (bench) => [await held(bench)] },
]
