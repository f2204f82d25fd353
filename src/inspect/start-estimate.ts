import { encodeRule } from '../limits/definition.ts'
import { costUnder, type QueueLimit } from '../limits/queue-limits.ts'
import { type Bucket, nthSlotOf } from './bucket.ts'
import type { DrainPace } from './drain-pace.ts'
import type { JobCost } from './job-cost.ts'
import type { QueueStatus } from './queue-status.ts'

/** A worker that is busy for less long, or for a smaller part of the time, is not missed. */
const LACK_MS = 1000
const LACK = 0.1

/** A job that waits, as far as its start depends on it. */
export interface WaitingJob extends JobCost {
  /** Jobs that leave before it. */
  readonly ahead: number
  /** When it may start at the earliest: the end of its delay. ms */
  readonly readyMs: number
}

/** The queue that it waits in. */
export interface DrainingQueue {
  readonly status: QueueStatus
  /** undefined where no rate is enforced. */
  readonly bucket: Bucket | undefined
  /** Of the job at the head. */
  readonly headCost: number | undefined
  /** How it drained lately; undefined where nobody told. */
  readonly pace: DrainPace | undefined
}

export interface StartEstimate {
  readonly startsAt: Date | undefined
  /** A sentence each. */
  readonly assumptions: readonly string[]
}

/** When a job will start, by what is known of what holds it, and what that takes for granted. */
export function estimateStart(job: WaitingJob, queue: DrainingQueue): StartEstimate {
  const { status } = queue
  if (status.paused) return unknown('The queue is paused, and nothing says until when.')
  if (status.feedback?.probing) return unknown('One job probes before others follow: nobody knows when it answers.')
  const found = [byRate(job, queue), byLimits(job, status), byWorkers(job, queue)].filter((one) => one !== undefined)
  const slowest = found.reduce((one, other) => (other.atMs > one.atMs ? other : one), earliest(job, status))
  if (!Number.isFinite(slowest.atMs)) return unknown(slowest.because)
  const notes = [slowest.because, 'Nothing is added before it, and nothing that is ahead of it is removed.']
  if (job.readyMs > status.at.getTime()) notes.push('What is due before it goes first.')
  return { startsAt: new Date(slowest.atMs), assumptions: notes }
}

/** A time, ms, and why it is not earlier. */
interface Bound {
  readonly atMs: number
  readonly because: string
}

function unknown(because: string): StartEstimate {
  return { startsAt: undefined, assumptions: [because] }
}

function earliest({ ahead, readyMs }: WaitingJob, { at, pausedUntil, waiting }: QueueStatus): Bound {
  const atMs = Math.max(at.getTime(), readyMs, pausedUntil?.getTime() ?? 0)
  const because = ahead > 0 || waiting > 1 ? 'Those ahead of it leave at once.' : 'A worker has a place for it.'
  return { atMs, because }
}

/** The slot behind those ahead of it, by the formulas of docs/algorithm.md. */
function byRate(job: WaitingJob, { status, bucket, headCost = 1 }: DrainingQueue): Bound | undefined {
  if (!bucket || status.shape?.mode !== 'enforce') return undefined
  const fromUs = Math.max(status.at.getTime() * 1000, (status.pausedUntil?.getTime() ?? 0) * 1000)
  const first = job.ahead === 0 ? job.cost : headCost
  const slotUs = nthSlotOf(bucket, job.ahead + 1, first, status.meanCost, fromUs)
  const cost = Number(status.meanCost.toPrecision(3))
  const because = `Jobs leave at ${status.rate}, and those ahead of it cost ${cost} in the mean, as the last ones did.`
  return { atMs: Math.max(slotUs / 1000, job.readyMs), because }
}

/** The slowest of the limits, each without what its burst or its window has left. */
function byLimits(job: WaitingJob, status: QueueStatus): Bound | undefined {
  if (status.shape?.mode !== 'enforce') return undefined
  const steps = (status.shape.limits ?? []).flatMap((limit) => {
    const stepMs = stepOf(limit, job)
    return stepMs === undefined ? [] : [{ name: limit.name, stepMs }]
  })
  const [first, ...others] = steps
  if (!first) return undefined
  const { name, stepMs } = others.reduce((one, other) => (other.stepMs > one.stepMs ? other : one), first)
  const headMs = Math.max(status.at.getTime(), status.hold?.until?.getTime() ?? 0)
  const each = Number(stepMs.toPrecision(3))
  const because = `Limit "${name}" lets one job go each ${each} ms: those ahead of it take as much of it, and no burst is left.`
  return { atMs: Math.max(headMs + job.ahead * stepMs, job.readyMs), because }
}

/** ms between two jobs like this one; undefined where the limit says nothing of it. */
function stepOf(limit: QueueLimit, { cost, costs }: JobCost): number | undefined {
  if ((limit.mode ?? 'enforce') !== 'enforce' || limit.algorithm === 'concurrency') return undefined
  const { interval, window = 0, limit: units = 1 } = encodeRule(limit)
  return ((interval ?? window / units) * costUnder(limit, cost, costs)) / 1000
}

/** Where workers are what holds the queue, it goes on as it went. */
function byWorkers({ ahead, readyMs }: WaitingJob, queue: DrainingQueue): Bound | undefined {
  const { status, pace } = queue
  const lacks = lacksWorkers(queue)
  const isPaced = isHeldBack(queue)
  if (!lacks && (isPaced || ahead === 0)) return undefined
  if (!pace?.departuresPerSecond) {
    // Of workers that live the rate is to be expected.
    if (isPaced && !pace && status.workers.length > 0) return undefined
    return {
      atMs: Number.POSITIVE_INFINITY,
      because: 'No job has left lately: nobody knows when a worker has a place.',
    }
  }
  const perSecond = Number(pace.departuresPerSecond.toPrecision(3))
  const because = `Workers go on to start ${perSecond} jobs a second, as in the last minute.`
  return { atMs: Math.max(status.at.getTime() + ((ahead + 1) * 1000) / pace.departuresPerSecond, readyMs), because }
}

/** Whether a rate or a limit decides when jobs leave. */
function isHeldBack({ status, bucket }: DrainingQueue): boolean {
  return status.shape?.mode === 'enforce' && (bucket !== undefined || (status.shape.limits ?? []).length > 0)
}

function lacksWorkers({ status: { hold, at }, pace }: DrainingQueue): boolean {
  if (pace && pace.lack > LACK) return true
  if (hold?.cause === 'workers') return at.getTime() - hold.since.getTime() >= LACK_MS
  return hold?.cause === 'concurrency'
}
