import { dateOfUs, groupStateOf } from '../queue/groups.ts'
import { decodeGroups } from '../shape/groups.ts'
import { StoredShape } from '../shape/stored.ts'
import { Batch, type BatchClient, type Deferred } from './batch.ts'
import { holdersOf } from './group-holders.ts'
import { closedOf } from './held.ts'
import { askForHistory } from './history.ts'
import { type FoundJob, type JobView, jobOf, readJobView } from './job-reading.ts'
import { type PauseMark, pausesOf } from './pauses.ts'
import { factsOf } from './queue-reading.ts'
import type { Explanation, GroupPlace, HeldMs, Hold, QueueFacts, Sample } from './queue-status.ts'
import { askForSeries, RESOLUTIONS } from './series.ts'
import { drainPace, estimateStart } from './start-estimate.ts'
import { type StreamEntry, type StreamReply, streamEntries } from './stream.ts'
import { type ClockPoint, type Stretch, splitWait } from './wait-split.ts'

/** Number of history entries to read: workers keep about as many. */
const HISTORY = 1000
/**
 * Number of BullMQ's events to read, which takes Redis less than 1 ms. BullMQ's own option decides how many it keeps.
 */
const EVENTS = 2000
/** How long before the start of a wait a sample may have been taken. */
const BEFORE_MS = 120_000

/** The data read for a job and its queue. */
interface Found {
  readonly id: string
  readonly job: FoundJob
  readonly view: JobView
  /** The shape of its queue; undefined if there is none. */
  readonly shape: StoredShape | undefined
  /** Its group and its place there, while it waits. */
  readonly group: GroupPlace | undefined
  readonly status: QueueFacts
}

/** Why a job has not started and when it may, or what it waited for; undefined where there is no such job. */
export async function explain(
  redis: BatchClient,
  name: string,
  base: string,
  id: string,
): Promise<Explanation | undefined> {
  const view = await readJobView(redis, base, id)
  if (!view) return undefined
  const found = foundOf(name, id, view)
  const { job, status } = found
  const nowMs = status.at.getTime()
  const batch = new Batch(redis)
  const lists = RESOLUTIONS.map((resolution) => askForSeries(base, resolution, batch))
  const history = askForHistory(base, batch, { count: HISTORY })
  const events = askForEvents(base, Math.min(job.dueMs, nowMs) - BEFORE_MS, batch)
  await batch.run()
  const samples = lists.flatMap((list) => list()).sort((one, other) => one.at.getTime() - other.at.getTime())
  const wait = waitOf(found, events())
  const points = [...samples, status].map(({ at, heldMs }) => ({ atMs: at.getTime(), heldMs }))
  const pauses = pausesOf({
    history: history().reverse(),
    limits: (status.shape?.limits ?? []).map((limit) => limit.name),
    switches: switchesIn(events()),
    samples: samples.map(({ at, paused }) => ({ atMs: at.getTime(), paused })),
    paused: status.paused,
  })
  return {
    ...described(found, wait.fromMs),
    holders: holdersOf(view.holders, nowMs),
    readyAt: new Date(wait.fromMs),
    startedAt: wait.startedMs === undefined ? undefined : new Date(wait.startedMs),
    ...estimated(found, samples),
    waitedMs: wait.toMs - wait.fromMs,
    parts: partsOf(found, points, pauses, wait),
  }
}

/** While its own group, or the limit of its keys, holds a job, it waits for nothing else. */
function partsOf(found: Found, points: readonly ClockPoint[], pauses: readonly Stretch[], wait: Stretch): HeldMs {
  const hold = isReady(found.job) ? holdOf(found) : undefined
  if (hold?.group === undefined && hold?.keys === undefined) return splitWait(points, pauses, wait)
  const sinceMs = Math.min(wait.toMs, Math.max(wait.fromMs, hold.since.getTime()))
  const before = splitWait(points, pauses, { ...wait, toMs: sinceMs })
  return { ...before, [hold.cause]: before[hold.cause] + wait.toMs - sinceMs }
}

function foundOf(name: string, id: string, view: JobView): Found {
  const { shape: fields } = view.queue
  const shape = fields && new StoredShape(fields)
  const row = view.group?.row
  const state = row && groupStateOf(row, decodeGroups(shape?.storedGroups ?? ''))
  return {
    ...{ id, view, shape, job: jobOf(view) },
    group: state && { ...state, ahead: view.group?.before ?? 0 },
    // The queue exists, as it has a job.
    status: factsOf(name, view.queue) as QueueFacts,
  }
}

function isReady({ state }: FoundJob): boolean {
  return state === 'waiting' || state === 'prioritized'
}

const CAUSES = { limited: 'rate', maxed: 'concurrency', paused: 'pause' } as const

/** The hold of a ready job: by its own group, by a limit of its keys, or otherwise the queue's. */
function holdOf(found: Found): Hold | undefined {
  const { status, group, view } = found
  const laneHold = laneHoldOf(found)
  if (laneHold) return laneHold
  const isInLine = !group || group.status === 'waiting' || group.status === 'idle'
  if (isInLine) {
    return isOfOtherLane(found) ? { cause: 'workers', since: new Date(0) } : status.hold
  }
  const { paused, limited } = group.overrides
  const { heldBy } = group
  const cause = limited ? 'pause' : heldBy ? 'limits' : CAUSES[group.status]
  const since = (paused ?? limited)?.setAt ?? dateOfUs(view.group?.served) ?? new Date(0)
  return {
    ...{ cause, group: group.id, since },
    ...(heldBy ? { limit: heldBy } : {}),
    ...(group.until ? { until: group.until } : {}),
    ...closedOf(view.group?.row?.closed),
  }
}

/** Whether the noted limit holds only jobs with other keys: it does not hold a job that was added later. */
function isOfOtherLane({ status: { hold, shape }, view: { lane } }: Found): boolean {
  return !!lane && shape?.limits?.some(({ name, by }) => name === hold?.limit && by !== undefined) === true
}

/** The limit that holds the lane of a job, unless its group is held as a whole. */
function laneHoldOf({ group, view: { lane, group: place } }: Found): Hold | undefined {
  if (!lane?.hold) return undefined
  if (group?.status === 'paused' || group?.status === 'maxed') return undefined
  if (group?.until && !group.heldKeys) return undefined
  const { limit, keys, ends, closed, others = [] } = lane.hold
  const until = dateOfUs(ends)
  const since = dateOfUs(place?.served) ?? new Date(0)
  const also = others.map((one) => ({ limit: one.limit, keys: one.keys, ...untilOf(dateOfUs(one.ends)) }))
  return {
    ...{ cause: 'limits', limit, keys, since },
    ...untilOf(until),
    ...closedOf(closed),
    ...(also.length > 0 ? { others: also } : {}),
  }
}

function untilOf(until: Date | undefined): Pick<Hold, 'until'> {
  return until ? { until } : {}
}

function described(found: Found, readyMs: number) {
  const { id, job, view, group, status } = found
  const { at, concurrency } = status
  const holds = isReady(job) || (job.state === 'delayed' && job.dueMs <= at.getTime())
  const hold = holds ? holdOf(found) : undefined
  return {
    queue: status.name,
    id,
    name: job.name,
    state: job.state,
    at,
    addedAt: new Date(job.addedMs),
    ...{ cost: job.cost, costs: job.costs },
    throttledFor: job.throttledFor,
    failedReason: job.failedReason,
    // The job may have become ready after the cause began to hold the jobs before it.
    hold: hold && { ...hold, since: new Date(Math.max(hold.since.getTime(), readyMs)) },
    concurrency,
    group,
    keys: job.keys,
    lane: view.lane && { ahead: view.lane.before },
    ahead: view.ahead,
    isAheadAtLeast: view.isAheadAtLeast,
  }
}

/**
 * The time from when the job could have started until it did, or until now. Before a job is due it waits for nothing
 * else.
 */
function waitOf({ id, job, status }: Found, events: readonly StreamEntry[]) {
  const nowMs = status.at.getTime()
  const started = ['active', 'completed', 'failed'].includes(job.state) ? job.departedMs : undefined
  if (job.state === 'delayed' || job.state === 'waiting-children') {
    return { fromMs: Math.max(job.dueMs, nowMs), toMs: Math.max(job.dueMs, nowMs), startedMs: undefined }
  }
  const toMs = Math.min(started ?? nowMs, nowMs)
  const isFirst = job.attemptsStarted <= (started === undefined ? 0 : 1)
  // While the job waits, its time of departure is that of its previous start; otherwise that start is no longer known.
  const before = started === undefined ? (job.departedMs ?? job.dueMs) : toMs
  const added = events.findLast(({ atMs, fields }) => fields.event === 'waiting' && fields.jobId === id && atMs <= toMs)
  const readyMs = isFirst ? job.dueMs : (added?.atMs ?? before)
  return { fromMs: Math.min(readyMs, toMs), toMs, startedMs: started }
}

function estimated({ job, view, shape, group: place, status }: Found, samples: readonly Sample[]) {
  const { ahead } = view
  if (ahead === undefined) return { startsAt: undefined, assumptions: [] }
  const pace = drainPace(samples, status, (shape?.number('changedAt') ?? 0) / 1000)
  const readyMs = job.state === 'delayed' ? job.dueMs : 0
  const estimate = estimateStart({ ...view, ahead, readyMs, place }, { status, pace })
  if (!view.isAheadAtLeast) return estimate
  const why = view.lane?.waits
    ? 'and other lanes may wait for the same limit'
    : 'in a list too long to search completely'
  const jobs = ahead === 1 ? '1 job is' : `${ahead} jobs are`
  const note = `At least ${jobs} ahead of it, ${why}: it starts no sooner, unless settled costs give units back.`
  return { ...estimate, assumptions: [...estimate.assumptions, note] }
}

/** BullMQ's latest events since a time on Redis's clock, oldest first. */
function askForEvents(base: string, sinceMs: number, batch: Batch): Deferred<StreamEntry[]> {
  const since = Math.max(0, Math.floor(sinceMs))
  const events = batch.add<StreamReply>('xrevrange', `${base}events`, '+', since, 'COUNT', EVENTS)
  return () => streamEntries(events()).reverse()
}

/** When BullMQ's pause was set and lifted. */
function switchesIn(events: readonly StreamEntry[]): PauseMark[] {
  return events.flatMap(({ atMs, fields: { event } }) =>
    event === 'paused' || event === 'resumed' ? [{ atMs, paused: event === 'paused' }] : [],
  )
}
