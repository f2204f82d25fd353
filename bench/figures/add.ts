import { performance } from 'node:perf_hooks'
import type { Queue } from 'bullmq'
import type { Bench, Figure, Row } from '../figure.ts'
import type { System } from '../fleet/protocol.ts'
import { interleaved } from '../measure/interleaved.ts'
import { atLeast, describeRatio, ratioOf } from '../measure/ratio.ts'
import { redisCpuUs } from '../measure/redis-usage.ts'
import { median } from '../measure/statistics.ts'
import { addInFlight, addJobs, makeQueue, removeQueue } from '../queues.ts'

const WARM_UP_JOBS = 100

interface Way {
  readonly what: string
  readonly jobs: number
  readonly asked: number
  run(queue: Queue, jobs: number): Promise<void>
}

const WAYS: readonly Way[] = [
  { what: 'add, one after another', jobs: 3000, asked: 0.95, run: (queue, jobs) => addInFlight(queue, jobs, 1) },
  { what: 'add, 50 in flight', jobs: 6000, asked: 1, run: (queue, jobs) => addInFlight(queue, jobs, 50) },
  { what: 'addBulk of 100', jobs: 10_000, asked: 1.3, run: (queue, jobs) => addJobs(queue, jobs, {}, 100) },
  { what: 'addBulk of 1000', jobs: 20_000, asked: 1.3, run: (queue, jobs) => addJobs(queue, jobs, {}, 1000) },
]
const QUICK_SHARE = 5

interface Adding {
  readonly perSecond: number
  readonly redisUs: number
}

async function addOnce(bench: Bench, system: System, way: Way): Promise<Adding> {
  const jobs = bench.quick ? way.jobs / QUICK_SHARE : way.jobs
  const queue = await makeQueue(bench, system, 'add')
  await addJobs(queue, WARM_UP_JOBS)
  const before = await redisCpuUs(bench.client)
  const startedMs = performance.now()
  await way.run(queue, jobs)
  const elapsedMs = performance.now() - startedMs
  const redisUs = ((await redisCpuUs(bench.client)) - before) / jobs
  await removeQueue(queue)
  return { perSecond: (jobs / elapsedMs) * 1000, redisUs }
}

async function row(bench: Bench, way: Way): Promise<Row> {
  const pairs = await interleaved(bench.quick, (system) => addOnce(bench, system, way))
  const ratio = ratioOf(pairs.map(({ sluice, bullmq }) => sluice.perSecond / bullmq.perSecond))
  const of = (system: System) => {
    const perSecond = median(pairs.map((pair) => pair[system].perSecond))
    return `${perSecond.toFixed(0)} jobs/s, ${median(pairs.map((pair) => pair[system].redisUs)).toFixed(0)} µs of Redis`
  }
  return {
    setup: way.what,
    ...atLeast(ratio, way.asked),
    reached: `${describeRatio(ratio, 3)}, ${of('sluice')}`,
    beside: of('bullmq'),
    values: { ratio, pairs },
  }
}

export const add: Figure = {
  name: 'add',
  title: "add and addBulk with a capacity set over BullMQ's Queue: median of interleaved pairs, the first discarded",
  run: async (bench) => {
    const rows: Row[] = []
    for (const way of WAYS) rows.push(await row(bench, way))
    return rows
  },
}
