import { type Bucket, charged, nthSlotOf, slotOf } from './bucket.ts'
import type { DrainPace } from './drain-pace.ts'
import type { PlaceAmongGroups } from './group-line.ts'
import type { JobCost } from './job-cost.ts'
import type { HoldingLimit, QueueLimits } from './limit-reading.ts'
import type { QueueFacts } from './queue-status.ts'

/** Below these, the lack of workers is ignored: a short wait for a worker, or a small share of the time. */
const LACK_MS = 1000
const LACK = 0.1
/** How many of the jobs ahead are computed one by one under limits. */
const EXACT = 50

/** A waiting job, as far as its start depends on it. */
export interface WaitingJob extends JobCost {
  /** Jobs that leave before it. */
  readonly ahead: number
  /** When it may start at the earliest: the end of its delay. ms */
  readonly readyMs: number
  /** Among the groups of its queue, where it has groups. */
  readonly place?: PlaceAmongGroups | undefined
}

/** The queue in which it waits. */
export interface DrainingQueue {
  readonly status: QueueFacts
  /** When it was read, in µs: the status has only ms. */
  readonly nowUs: number
  /** undefined where no rate is enforced. */
  readonly bucket: Bucket | undefined
  /** The limits that hold its jobs. An estimate charges them with the jobs ahead, so each estimate needs fresh ones. */
  readonly limits: QueueLimits
  /** Of the job at the head. */
  readonly headCost: number | undefined
  /** How fast it drained recently; undefined where unreported. */
  readonly pace: DrainPace | undefined
}

export interface StartEstimate {
  readonly startsAt: Date | undefined
  /** A sentence each. */
  readonly assumptions: readonly string[]
}

/** Estimates when a job will start, from what holds it, and lists the assumptions. */
export function estimateStart(job: WaitingJob, queue: DrainingQueue): StartEstimate {
  const { status } = queue
  if (status.paused) return unknown('The queue is paused without an end.')
  if (status.feedback?.probing)
    return unknown('One job probes before others follow, and it is unknown when it will be answered.')
  if (status.shape?.mode === 'enforce' && queue.limits.taken !== undefined)
    return unknown(`All places of limit "${queue.limits.taken}" are taken, and it is unknown when one becomes free.`)
  const bounds = [
    byRate(job, queue),
    byLimits(job, queue),
    byGroup(job),
    byGroupLimits(job, queue),
    byWorkers(job, queue),
  ]
  const found = bounds.filter((one) => one !== undefined)
  const slowest = found.reduce((one, other) => (other.atMs > one.atMs ? other : one), earliest(job, status))
  if (!Number.isFinite(slowest.atMs)) return unknown(slowest.because)
  const notes = [slowest.because, 'No job is added ahead of it, and no job ahead of it is removed.']
  if (job.readyMs > status.at.getTime()) notes.push('Jobs that are due earlier go first.')
  return { startsAt: new Date(slowest.atMs), assumptions: notes }
}

/** What may hold the job at the head. */
export interface HeadHolds {
  readonly job: JobCost
  /** undefined where no rate is enforced. */
  readonly bucket: Bucket | undefined
  readonly limits: QueueLimits
  /** Before which nothing leaves, µs. */
  readonly fromUs: number
}

/** When the job at the head could leave, by the rate and all limits, µs; undefined where unknown. */
export function headStartUs({ job, bucket, limits, fromUs }: HeadHolds, nowUs: number): number | undefined {
  if (limits.taken !== undefined || (!bucket && limits.holding.length === 0)) return undefined
  const waitsUs = limits.holding.map(({ plan, costOf, kept }) => plan.earliest(costOf(job) + kept))
  const conformsUs = Math.max(fromUs, ...waitsUs.map((us) => nowUs + Math.ceil(us)))
  return bucket ? slotOf(bucket, job.cost, conformsUs) : conformsUs
}

/** A time, ms, and why it is not earlier. */
interface Bound {
  readonly atMs: number
  readonly because: string
}

function unknown(because: string): StartEstimate {
  return { startsAt: undefined, assumptions: [because] }
}

function earliest({ ahead, readyMs }: WaitingJob, { at, pausedUntil, waiting }: QueueFacts): Bound {
  const atMs = Math.max(at.getTime(), readyMs, pausedUntil?.getTime() ?? 0)
  const because = ahead > 0 || waiting > 1 ? 'The jobs ahead of it leave at once.' : 'A worker has a place for it.'
  return { atMs, because }
}

/** The slot after those of the jobs ahead of it, by the formulas of docs/algorithm.md. */
function byRate(job: WaitingJob, { status, nowUs, bucket, headCost = 1 }: DrainingQueue): Bound | undefined {
  if (!bucket || status.shape?.mode !== 'enforce') return undefined
  const fromUs = Math.max(nowUs, (status.pausedUntil?.getTime() ?? 0) * 1000)
  const first = job.ahead === 0 ? job.cost : headCost
  const slotUs = nthSlotOf(bucket, job.ahead + 1, first, status.meanCost, fromUs)
  const cost = Number(status.meanCost.toPrecision(3))
  const because = `Jobs leave at ${status.rate}, and those ahead of it cost ${cost} on average, like the last ones.`
  return { atMs: Math.max(slotUs / 1000, job.readyMs), because }
}

/** Jobs that leave one behind the other under limits. */
interface LimitedLine {
  readonly limits: readonly HoldingLimit[]
  readonly bucket: Bucket | undefined
  readonly ahead: number
  /** Of the first of those ahead. */
  readonly headCost: number
}

function byLimits(job: WaitingJob, queue: DrainingQueue): Bound | undefined {
  const { status, bucket, headCost = 1 } = queue
  const limits = queue.limits.holding
  if (status.shape?.mode !== 'enforce' || limits.length === 0) return undefined
  const { atMs, held } = throughLimits(job, queue, { limits, bucket, ahead: job.ahead, headCost })
  return { atMs, because: `Limit "${held.name}" allows it then, if the jobs ahead of it take as much.` }
}

/** The limits of its group, which count the jobs of that group alone. */
function byGroupLimits(job: WaitingJob, queue: DrainingQueue): Bound | undefined {
  const { limits = [], before = 0, group } = job.place ?? {}
  if (limits.length === 0) return undefined
  const line = { limits, bucket: undefined, ahead: before, headCost: queue.status.meanCost }
  const { atMs, held } = throughLimits(job, queue, line)
  const whose = group ? `group "${group.id}"` : 'the jobs without a group'
  return { atMs, because: `Limit "${held.name}" of ${whose} allows it then, if the jobs ahead of it take as much.` }
}

/**
 * Goes through the jobs ahead of it one by one, up to `EXACT`; as `lua/admission/schedule.lua`, with the mean cost for all.
 */
function throughLimits(job: WaitingJob, { status, nowUs }: DrainingQueue, line: LimitedLine) {
  const { limits, ahead, headCost } = line
  let owed = line.bucket
  let offsetUs = Math.max(0, (status.pausedUntil?.getTime() ?? 0) * 1000 - nowUs)
  let held = limits[0] as HoldingLimit
  const costAt = (place: number) => (place === ahead ? job.cost : place === 0 ? headCost : status.meanCost)
  const exact = Math.min(ahead + 1, EXACT)
  for (let place = 0; place < exact; place++) {
    const cost = costAt(place)
    for (const limit of limits) {
      const waitUs = limit.plan.earliest(limit.costOf({ ...job, cost }) + limit.kept)
      if (waitUs > offsetUs) [offsetUs, held] = [waitUs, limit]
    }
    if (owed) {
      const slotUs = slotOf(owed, cost, nowUs + offsetUs)
      offsetUs = Math.max(offsetUs, slotUs - nowUs)
      owed = charged(owed, cost, slotUs)
    }
    for (const limit of limits) limit.plan.charge(limit.costOf({ ...job, cost }), offsetUs)
  }
  const more = ahead + 1 - exact
  const far = (limit: HoldingLimit) => limit.plan.far(limit.costOf({ ...job, cost: status.meanCost }), more, offsetUs)
  const farUs = more === 0 ? [] : limits.map(far)
  const atMs = (nowUs + Math.max(offsetUs, ...farUs)) / 1000
  return { atMs: Math.max(atMs, job.readyMs), held }
}

/** The turns of its group are in the jobs ahead of it; this is when the group itself lets it go. */
function byGroup({ place }: WaitingJob): Bound | undefined {
  const group = place?.group
  if (!group) return undefined
  const { id, status, inForce } = group
  const atMs = place.ownStartMs
  if (atMs === Number.POSITIVE_INFINITY) {
    const why = status === 'paused' ? 'is paused without an end' : 'runs as many jobs as it may'
    return { atMs, because: `Group "${id}" ${why}.` }
  }
  const held = status === 'paused' ? 'is paused until then' : `lets its jobs leave at ${inForce.rate ?? 'any rate'}`
  return { atMs, because: `Group "${id}" ${held}.` }
}

/** Where the lack of workers holds the queue, its recent pace is assumed to continue. */
function byWorkers({ ahead, readyMs }: WaitingJob, queue: DrainingQueue): Bound | undefined {
  const { status, pace } = queue
  const lacks = lacksWorkers(queue)
  const isPaced = isHeldBack(queue)
  if (!lacks && (isPaced || ahead === 0)) return undefined
  if (!pace?.departuresPerSecond) {
    // Live workers are expected to keep to the rate.
    if (isPaced && !pace && status.workers.length > 0) return undefined
    return {
      atMs: Number.POSITIVE_INFINITY,
      because: 'No job has left recently, so it is unknown when a worker has a place.',
    }
  }
  const perSecond = Number(pace.departuresPerSecond.toPrecision(3))
  const because = `Workers continue to start ${perSecond} jobs a second, as in the last minute.`
  return { atMs: Math.max(status.at.getTime() + ((ahead + 1) * 1000) / pace.departuresPerSecond, readyMs), because }
}

/** Whether a rate or a limit decides when jobs leave. */
function isHeldBack({ status, bucket }: DrainingQueue): boolean {
  return (
    status.shape?.mode === 'enforce' &&
    (bucket !== undefined || (status.shape.limits ?? []).some(({ per }) => per !== 'group'))
  )
}

function lacksWorkers({ status: { hold, at, active, concurrency }, pace }: DrainingQueue): boolean {
  if (pace && pace.lack > LACK) return true
  // Applies even if no worker has polled since.
  if (concurrency && active >= concurrency.inForce) return true
  if (hold?.cause === 'workers') return at.getTime() - hold.since.getTime() >= LACK_MS
  return hold?.cause === 'concurrency' && hold.group === undefined
}
