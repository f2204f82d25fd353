import type { JobRow, QueueStatus } from 'sluice/inspect'
import { concurrencyText, sizeShape } from 'sluice/internal'
import { type ExaminedQueue, type Finding, Findings, permitted } from '../check.ts'

const SAMPLED_JOBS = 200
const HIGH = 0.95

/** Whether the live workers can run as many jobs at once as the rate needs: rate × (job time + horizon). */
export async function concurrencyForRate({ inspector, queue, status }: ExaminedQueue): Promise<Finding[]> {
  const findings = new Findings('concurrency', queue)
  const rate = status.shape?.rate
  if (rate === undefined) return [findings.ok('the queue has no rate for workers to keep up with')]
  if (status.workers.length === 0) return [withoutWorkers(findings, status)]
  return permitted(findings, 'to read jobs', async () => {
    const jobs = await inspector.jobs(queue, 'completed', { count: SAMPLED_JOBS })
    const jobSeconds = measuredSeconds(jobs) ?? littlesSeconds(status)
    if (jobSeconds === undefined) {
      return [findings.skipped('no job has ended yet, so it is not known how long one runs', 'check again later')]
    }
    return [compared(findings, status, rate, jobSeconds)]
  })
}

function withoutWorkers(findings: Findings, { depth, active }: QueueStatus): Finding {
  if (depth + active === 0) return findings.ok('no live workers, and no waiting jobs')
  return findings.skipped('no worker has reported how many jobs it runs at once', 'check again when one runs')
}

function compared(
  findings: Findings,
  { shape, meanCost, workers, concurrency }: QueueStatus,
  rate: string,
  jobSeconds: number,
): Finding {
  const horizon = shape?.horizonMs === undefined ? {} : { horizonMs: shape.horizonMs }
  const needed = sizeShape({
    rate,
    arrivalsPerSecond: 0,
    spikeSeconds: 0,
    jobSeconds,
    meanCost,
    ...horizon,
  }).concurrency
  const ofWorkers = workers.reduce((sum, { concurrency }) => sum + concurrency, 0)
  const has = Math.min(ofWorkers, concurrency?.inForce ?? ofWorkers)
  const needs = `${rate} of jobs that run ${Math.round(jobSeconds * 1000)} ms needs ${needed} at once`
  if (has >= needed) return findings.ok(`${needs}, and there are ${has}`)
  if (has < ofWorkers && concurrency && concurrency.set !== concurrency.inForce) {
    const remedy =
      concurrency.cause === 'feedback'
        ? 'none, if the feedback of the downstream is right'
        : `set shape.concurrency to at least ${needed}: it overwrites what a plain BullMQ queue has set`
    return findings.warning(`${needs}, and there are only ${has}: ${concurrencyText(concurrency)}`, remedy)
  }
  const remedy =
    has < ofWorkers
      ? `raise shape.concurrency to at least ${needed}`
      : `start more workers, or raise their concurrency, to ${needed} in all`
  return findings.warning(`${needs}, and there are only ${has}: the rate is not reached`, remedy)
}

/** The 95th percentile of the run times of the kept jobs, s. */
function measuredSeconds(jobs: readonly JobRow[]): number | undefined {
  const seconds = jobs
    .flatMap(({ startedAt, finishedAt }) => (startedAt && finishedAt ? [(+finishedAt - +startedAt) / 1000] : []))
    .toSorted((a, b) => a - b)
  return seconds[Math.min(seconds.length - 1, Math.floor(seconds.length * HIGH))]
}

/** By Little's law, if finished jobs are not kept: running jobs = starts per second × run time. */
function littlesSeconds({ workers }: QueueStatus): number | undefined {
  const running = workers.reduce((sum, worker) => sum + worker.running, 0)
  const perSecond = workers.reduce((sum, worker) => sum + worker.ratePerSecond, 0)
  return running > 0 && perSecond > 0 ? running / perSecond : undefined
}
