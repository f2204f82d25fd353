import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench, Figure } from '../figure.ts'
import type { System } from '../fleet/protocol.ts'
import { interleaved } from '../measure/interleaved.ts'
import { atMost, describeRatio, ratioOf } from '../measure/ratio.ts'
import { redisCpuUs } from '../measure/redis-usage.ts'
import { median } from '../measure/statistics.ts'
import { spacedLimiter } from '../paced-runs.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'

const PER_SECOND = 500
const WORKERS = 4
const CONCURRENCY = 20
const ASKED = 0.9
const SETTLE_MS = 1000
const MEASURED_MS = 5000
const QUICK_MS = 1000

/** Redis's CPU time per job under a backlog, µs. */
async function redisUsPerJob(bench: Bench, system: System): Promise<number> {
  const queue = await makeQueue(bench, system, 'paced', { rate: `${PER_SECOND}/s` })
  const measuredMs = bench.quick ? QUICK_MS : MEASURED_MS
  await addJobs(queue, (2 * PER_SECOND * (SETTLE_MS + measuredMs)) / 1000)
  const process = bench.fleet.process(`paced ${system}`)
  const spec = { system, queue: queue.name, redis: bench.redis, workers: WORKERS, concurrency: CONCURRENCY, jobMs: 0 }
  await process.call('open', system === 'sluice' ? spec : { ...spec, limiter: spacedLimiter(PER_SECOND) })
  await sleep(SETTLE_MS)
  const [doneBefore, before] = [await queue.getCompletedCount(), await redisCpuUs(bench.client)]
  await sleep(measuredMs)
  const [doneAfter, after] = [await queue.getCompletedCount(), await redisCpuUs(bench.client)]
  await process.call('close', queue.name)
  await removeQueue(queue)
  return (after - before) / (doneAfter - doneBefore)
}

export const pacedRedis: Figure = {
  name: 'paced-redis',
  title:
    "Redis's CPU time per job under a backlog, over BullMQ's limiter with { max: 1 }: median of interleaved pairs, the " +
    'first discarded, and their spread',
  run: async (bench) => {
    const pairs = await interleaved(bench.quick, (system) => redisUsPerJob(bench, system))
    const ratio = ratioOf(pairs.map(({ sluice, bullmq }) => sluice / bullmq))
    return [
      {
        setup: `${PER_SECOND}/s, ${WORKERS} workers × ${CONCURRENCY}`,
        ...atMost(ratio, ASKED),
        reached: `${describeRatio(ratio)}, ${median(pairs.map(({ sluice }) => sluice)).toFixed(0)} µs`,
        beside: `${median(pairs.map(({ bullmq }) => bullmq)).toFixed(0)} µs`,
        values: { ratio, pairs },
      },
    ]
  },
}
