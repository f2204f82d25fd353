import type { JobPlaceView } from './job-reading.ts'
import { keysText } from './keys-text.ts'
import type { GroupPlace, QueueFacts, Sample } from './queue-status.ts'

/** Below these, the lack of workers is ignored: a short wait for a worker, or a small share of the time. */
const LACK_MS = 1000
const LACK = 0.1
/** The time over which the pace is measured, ms. */
const LONGEST_MS = 60_000
const SHORTEST_MS = 1000

/** The data of a waiting job that decides its start, and when the rate, limits and groups of its queue let it start. */
export interface WaitingJob extends Omit<JobPlaceView, 'ahead'> {
  /** Jobs that depart before it. */
  readonly ahead: number
  /** The earliest start: the end of its delay. ms */
  readonly readyMs: number
  /** The state of its group; undefined for a job without one. */
  readonly place: GroupPlace | undefined
}

/** How fast a queue drained recently, over the time in which jobs waited and no pause held. */
interface DrainPace {
  readonly departuresPerSecond: number
  /** The share of that time in which the head waited for a worker, or for running jobs to end: 0 to 1. */
  readonly lack: number
}

/** The queue in which it waits. */
export interface DrainingQueue {
  readonly status: QueueFacts
  /** How fast it drained recently; undefined if unreported. */
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
  const { hold } = job.lane ?? {}
  const taken = hold?.places === undefined ? job.taken && `"${job.taken}"` : `"${hold.limit}" of ${keysText(hold.keys)}`
  if (taken !== undefined)
    return unknown(`All places of limit ${taken} are taken, and it is unknown when one becomes free.`)
  const bounds = [byRate(job, status), byLimits(job), byGroup(job), byWorkers(job, queue)]
  const found = bounds.filter((one) => one !== undefined)
  const slowest = found.reduce((one, other) => (other.atMs > one.atMs ? other : one), earliest(job, status))
  if (!Number.isFinite(slowest.atMs)) return unknown(slowest.because)
  const notes = [slowest.because, 'No job is added ahead of it, and no job ahead of it is removed.']
  if (job.readyMs > status.at.getTime()) notes.push('Jobs that are due earlier go first.')
  return { startsAt: new Date(Math.max(slowest.atMs, job.readyMs)), assumptions: notes }
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

/** The slot after those of the jobs ahead of it. */
function byRate({ rateStart }: WaitingJob, { rate, meanCost }: QueueFacts): Bound | undefined {
  if (rateStart === undefined) return undefined
  const cost = Number(meanCost.toPrecision(3))
  const because = `Jobs leave at ${rate}, and those ahead of it cost ${cost} on average, like the last ones.`
  return { atMs: Number(rateStart) / 1000, because }
}

function byLimits({ limit, limitStart }: WaitingJob): Bound | undefined {
  if (limitStart === undefined) return undefined
  const because = `Limit "${limit}" allows it then, if the jobs ahead of it take as much.`
  return { atMs: Number(limitStart) / 1000, because }
}

const MAXED = {
  concurrency: 'runs as many jobs as it may',
  order: 'waits until the job that started last has completed or failed permanently',
  keepFree: 'runs jobs, and the places that are left are kept for groups with no running job (keepFree)',
} as const

/** The jobs ahead of it include the turns of its group; this is when the group itself lets it go. */
function byGroup({ group, place, lane }: WaitingJob): Bound | undefined {
  const atMs = group?.start === undefined ? Number.POSITIVE_INFINITY : Number(group.start) / 1000
  if (group?.limit !== undefined) {
    const because = `Limit "${group.limit}" of ${whoseLimit(group.limit, place, lane)} allows it then, if the jobs ahead of it take as much.`
    return { atMs, because }
  }
  if (!place) return undefined
  const { id, status, until, inForce, maxedBy } = place
  const isPaused = status === 'paused'
  if (status === 'maxed' || (isPaused && !until)) {
    const why = isPaused ? 'is paused without an end' : MAXED[maxedBy ?? 'concurrency']
    return { atMs: Number.POSITIVE_INFINITY, because: `Group "${id}" ${why}.` }
  }
  const held = isPaused ? 'is paused until then' : `lets its jobs leave at ${inForce.rate ?? 'any rate'}`
  return { atMs, because: `Group "${id}" ${held}.` }
}

/** The subject of a limit per group or key, for display. */
function whoseLimit(limit: string, place: WaitingJob['place'], lane: WaitingJob['lane']): string {
  if (lane?.hold?.limit === limit) return keysText(lane.hold.keys)
  if (lane) return 'its keys'
  return place ? `group "${place.id}"` : 'the jobs without a group'
}

/** If the lack of workers holds the queue, its recent pace is assumed to continue. */
function byWorkers({ ahead, lane }: WaitingJob, queue: DrainingQueue): Bound | undefined {
  const { status, pace } = queue
  const lacks = lacksWorkers(queue)
  const isPaced = isHeldBack(status) || lane?.waits === true
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
  return { atMs: status.at.getTime() + ((ahead + 1) * 1000) / pace.departuresPerSecond, because }
}

/** Whether a rate or a limit decides when jobs depart. */
function isHeldBack({ shape, rate }: QueueFacts): boolean {
  if (shape?.mode !== 'enforce') return false
  return rate !== undefined || (shape.limits ?? []).some((limit) => limit.by === undefined)
}

function lacksWorkers({ status: { hold, at, active, concurrency }, pace }: DrainingQueue): boolean {
  if (pace && pace.lack > LACK) return true
  // Applies even if no worker has polled since.
  if (concurrency && active >= concurrency.inForce) return true
  if (hold?.cause === 'workers') return at.getTime() - hold.since.getTime() >= LACK_MS
  return hold?.cause === 'concurrency' && hold.group === undefined
}

/**
 * The pace of the last minute; undefined if that time is too short for an estimate.
 * @param samples oldest first
 * @param sinceMs when the current rate and burst began
 */
export function drainPace(samples: readonly Sample[], status: QueueFacts, sinceMs: number): DrainPace | undefined {
  const nowMs = status.at.getTime()
  const earliestMs = Math.max(sinceMs, nowMs - LONGEST_MS)
  const before = samples.findLastIndex(
    ({ at, waiting, paused }) => waiting === 0 || paused || at.getTime() < earliestMs,
  )
  const first = samples[before + 1]
  const spanMs = first ? nowMs - first.at.getTime() : 0
  if (!first || spanMs < SHORTEST_MS) return undefined
  const held = (cause: 'workers' | 'concurrency') => Math.max(0, status.heldMs[cause] - first.heldMs[cause])
  return {
    departuresPerSecond: (Math.max(0, status.departedTotal - first.departed) * 1000) / spanMs,
    lack: Math.min(1, (held('workers') + held('concurrency')) / spanMs),
  }
}
