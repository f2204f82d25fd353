import { ALONE, type Bench, type Figure, inTurn, type Row } from './harness/figure.ts'
import { amongGroups, jobsFrom, makeQueue, type OptionsOf, removeQueue, type System } from './harness/queues.ts'
import { usedMemory } from './harness/redis.ts'

/** Waiting jobs: how many, with how many bytes of JSON as data, and how they are grouped or otherwise kept. */
interface Case {
  readonly what: string
  readonly bytes: number
  readonly groups?: number
  readonly opts?: OptionsOf
}

const JOBS = 20_000
const BULK = 1000
/** `{"t":""}` */
const LEAST_BYTES = 8

const CASES: readonly Case[] = [
  ...[2, 300, 1000, 10_000].map((bytes) => ({ what: `${bytes} bytes of data`, bytes })),
  ...[2, 1000].map((bytes) => ({ what: `${bytes} bytes of data, 40 groups`, bytes, groups: 40 })),
  { what: '100 jobs per group', bytes: 10, groups: JOBS / 100 },
  { what: 'one job per group', bytes: 10, groups: JOBS },
  { what: 'priorities', bytes: 2, opts: (i) => ({ priority: 1 + (i % 5) }) },
  { what: 'delays', bytes: 2, opts: (i) => ({ delay: 3_600_000 + i }) },
]

async function bytesPerJob(bench: Bench, system: System, { bytes, groups, opts }: Case): Promise<number> {
  const queue = await makeQueue(bench, system, 'memory', groups === undefined ? {} : { groups: {} })
  const data = bytes < LEAST_BYTES ? {} : { t: 'x'.repeat(bytes - LEAST_BYTES) }
  const grouped = groups !== undefined && system === 'sluice' ? amongGroups(groups) : {}
  const before = await usedMemory(bench.client)
  for (let added = 0; added < JOBS; added += BULK)
    await queue.addBulk(jobsFrom(added, BULK, opts ?? grouped).map((job) => ({ ...job, data })))
  const used = (await usedMemory(bench.client)) - before
  await removeQueue(queue)
  return used / JOBS
}

export const memory: Figure = {
  name: 'memory',
  title: `What each of ${JOBS} waiting jobs takes in Redis, by used_memory, beside BullMQ's without groups`,
  headings: ALONE,
  run: (bench) =>
    inTurn(CASES, async (one): Promise<Row> => {
      const [ours, stock] = [await bytesPerJob(bench, 'sluice', one), await bytesPerJob(bench, 'bullmq', one)]
      const beside = `BullMQ ${stock.toFixed(0)}`
      return { setup: one.what, reached: `${ours.toFixed(0)} bytes`, beside, values: { ours, stock } }
    }),
}
