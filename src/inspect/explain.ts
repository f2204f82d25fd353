import { AgeingOrder } from './ageing.ts'
import { type Answer, Batch, type BatchClient } from './batch.ts'
import { drainPace } from './drain-pace.ts'
import { groupHolders } from './group-holders.ts'
import { GroupLineReading, type PlaceAmongGroups } from './group-line.ts'
import { HistoryReading } from './history.ts'
import { type FoundJob, JobReading } from './job-reading.ts'
import { type QueueLimits, readLimits } from './limit-reading.ts'
import { type PauseMark, pausesOf } from './pauses.ts'
import { QueueReading } from './queue-reading.ts'
import type { Explanation, HeldMs, Hold, QueueFacts, Sample } from './queue-status.ts'
import { redisTime } from './redis-time.ts'
import { RESOLUTIONS, SeriesReading } from './series.ts'
import { estimateStart } from './start-estimate.ts'
import { type StreamEntry, type StreamReply, streamEntries } from './stream.ts'
import { type ClockPoint, type Stretch, splitWait } from './wait-split.ts'

/** How many entries of the history are read: workers keep about as many. */
const HISTORY = 1000
/** How many of BullMQ's events are read, which takes Redis less than 1 ms. It keeps as many as it is told to. */
const EVENTS = 2000
/** How often to look up a job that moves from one state to another during the read. */
const ATTEMPTS = 3
/** How long before the start of a wait a sample may have been taken. */
const BEFORE_MS = 120_000

/** What was read of a job and its queue. */
interface Found {
  readonly id: string
  readonly job: FoundJob
  readonly ahead: number | undefined
  readonly isAheadAtLeast: boolean
  /** undefined where its queue has no groups, or where it does not wait. */
  readonly place: PlaceAmongGroups | undefined
  readonly queue: QueueReading
  readonly status: QueueFacts
  readonly nowUs: number
}

/** Why a job has not started and when it may, or what it waited for; undefined where there is no such job. */
export async function explain(
  redis: BatchClient,
  name: string,
  base: string,
  id: string,
): Promise<Explanation | undefined> {
  const found = await findJob(redis, name, base, id)
  if (!found) return undefined
  const { job, status, nowUs } = found
  const batch = new Batch(redis)
  const lists = RESOLUTIONS.map((resolution) => new SeriesReading(base, resolution, batch))
  const history = new HistoryReading(base, batch, { count: HISTORY })
  const events = new QueueEventsReading(base, Math.min(job.dueMs, nowUs / 1000) - BEFORE_MS, batch)
  const group = found.place?.group
  const [limits, holders] = await Promise.all([
    readLimits(redis, base, found.queue.limits(nowUs), nowUs),
    group?.status === 'maxed' ? groupHolders(redis, base, group.id, nowUs / 1000) : [],
    batch.run(),
  ])
  const samples = lists.flatMap((list) => list.samples()).sort((one, other) => one.at.getTime() - other.at.getTime())
  const wait = waitOf(found, events)
  const points = [...samples, status].map(({ at, heldMs }) => ({ atMs: at.getTime(), heldMs }))
  const pauses = pausesOf({
    history: history.entries().reverse(),
    limits: (status.shape?.limits ?? []).map((limit) => limit.name),
    switches: events.switches(),
    samples: samples.map(({ at, paused }) => ({ atMs: at.getTime(), paused })),
    paused: status.paused,
  })
  return {
    ...described(found, wait.fromMs),
    holders,
    readyAt: new Date(wait.fromMs),
    startedAt: wait.startedMs === undefined ? undefined : new Date(wait.startedMs),
    ...estimated(found, samples, limits),
    waitedMs: wait.toMs - wait.fromMs,
    parts: partsOf(found, points, pauses, wait),
  }
}

/** While its own group holds a job, it waits for nothing else. */
function partsOf(found: Found, points: readonly ClockPoint[], pauses: readonly Stretch[], wait: Stretch): HeldMs {
  const hold = isReady(found.job) ? holdOf(found) : undefined
  if (hold?.group === undefined) return splitWait(points, pauses, wait)
  const sinceMs = Math.min(wait.toMs, Math.max(wait.fromMs, hold.since.getTime()))
  const before = splitWait(points, pauses, { ...wait, toMs: sinceMs })
  return { ...before, [hold.cause]: before[hold.cause] + wait.toMs - sinceMs }
}

async function findJob(redis: BatchClient, name: string, base: string, id: string): Promise<Found | undefined> {
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const found = await lookUp(redis, { name, base, id }, attempt === ATTEMPTS)
    if (found) return found
  }
  return undefined
}

async function lookUp(
  redis: BatchClient,
  { name, base, id }: { readonly name: string; readonly base: string; readonly id: string },
  isLast: boolean,
): Promise<Found | undefined> {
  const batch = new Batch(redis, base)
  const time = redisTime(batch)
  const reading = new JobReading(base, id, batch, isLast)
  const queue = new QueueReading(name, base, batch)
  await batch.run()
  const job = reading.job()
  if (!job) return undefined
  const nowUs = time()
  const second = new Batch(redis)
  queue.more(second, nowUs)
  reading.more(second)
  const groups = isReady(job) ? queue.storedGroups(nowUs) : undefined
  const line = groups === undefined ? undefined : new GroupLineReading(base, job.groupId, id, second)
  await second.run()
  const ageingMs = isReady(job) ? queue.ageingMs(nowUs) : undefined
  const order = ageingMs === undefined ? undefined : new AgeingOrder(redis, base, ageingMs, nowUs)
  await Promise.all([line?.age(order), queue.age(redis, nowUs)])
  const third = new Batch(redis)
  queue.last(third)
  line?.more(third, queue.groupLimits(nowUs), nowUs)
  await third.run()
  const fourth = new Batch(redis)
  queue.end(fourth)
  await fourth.run()
  const status = queue.status(nowUs)
  const before = await jobsBefore(reading, job, line, order, { base, id })
  const timed = { meanCost: status.meanCost, nowUs }
  const place = before === undefined ? undefined : line?.place(groups as string, { cost: job.cost, before }, timed)
  return {
    id,
    job,
    ahead: line ? place?.ahead : before,
    isAheadAtLeast: reading.isInMiddle || (place?.isAheadAtLeast ?? false),
    place,
    queue,
    status,
    nowUs,
  }
}

/** How many jobs of its line, the queue or its group, leave before a job; undefined where it is not in line yet. */
async function jobsBefore(
  reading: JobReading,
  job: FoundJob,
  line: GroupLineReading | undefined,
  order: AgeingOrder | undefined,
  { base, id }: { readonly base: string; readonly id: string },
): Promise<number | undefined> {
  if (!order) return line ? line.before({ ...job, ahead: reading.ahead ?? 0 }) : reading.ahead
  const index = job.state === 'waiting' ? reading.ahead : undefined
  return order.ahead(line?.line ?? { set: `${base}prioritized`, from: 0, list: `${base}wait` }, { id, index })
}

function isReady({ state }: FoundJob): boolean {
  return state === 'waiting' || state === 'prioritized'
}

const CAUSES = { limited: 'rate', maxed: 'concurrency', paused: 'pause' } as const

/** What holds a ready job: its own group, or else what holds the queue. */
function holdOf({ status, place }: Found): Hold | undefined {
  const group = place?.group
  if (!group || group.status === 'waiting' || group.status === 'idle') return status.hold
  const { paused, limited } = group.overrides
  const { heldBy } = group
  const cause = limited ? 'pause' : heldBy ? 'limits' : CAUSES[group.status]
  const since = (paused ?? limited)?.setAt ?? place.servedAt ?? new Date(0)
  return {
    ...{ cause, group: group.id, since },
    ...(heldBy ? { limit: heldBy } : {}),
    ...(group.until ? { until: group.until } : {}),
  }
}

function described(found: Found, readyMs: number) {
  const { id, job, ahead, isAheadAtLeast, place, status } = found
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
    cost: job.cost,
    throttledFor: job.throttledFor,
    failedReason: job.failedReason,
    // The job may have become ready after the cause began to hold the jobs before it.
    hold: hold && { ...hold, since: new Date(Math.max(hold.since.getTime(), readyMs)) },
    concurrency,
    group: place?.group,
    ahead,
    isAheadAtLeast,
  }
}

/** From when the job could have started until it did, or until now. Before a job is due it waits for nothing else. */
function waitOf({ id, job, status }: Found, events: QueueEventsReading) {
  const nowMs = status.at.getTime()
  const started = ['active', 'completed', 'failed'].includes(job.state) ? job.departedMs : undefined
  if (job.state === 'delayed' || job.state === 'waiting-children') {
    return { fromMs: Math.max(job.dueMs, nowMs), toMs: Math.max(job.dueMs, nowMs), startedMs: undefined }
  }
  const toMs = Math.min(started ?? nowMs, nowMs)
  const isFirst = job.attemptsStarted <= (started === undefined ? 0 : 1)
  // While the job waits, its time of departure is that of its previous start; otherwise that start is no longer known.
  const before = started === undefined ? (job.departedMs ?? job.dueMs) : toMs
  const readyMs = isFirst ? job.dueMs : (events.waitingSince(id, toMs) ?? before)
  return { fromMs: Math.min(readyMs, toMs), toMs, startedMs: started }
}

function estimated(
  { job, ahead, isAheadAtLeast, place, queue, status, nowUs }: Found,
  samples: readonly Sample[],
  limits: QueueLimits,
) {
  if (ahead === undefined) return { startsAt: undefined, assumptions: [] }
  const pace = drainPace(samples, status, queue.changedAtMs(nowUs))
  const estimate = estimateStart(
    { cost: job.cost, costs: job.costs, ahead, readyMs: job.state === 'delayed' ? job.dueMs : 0, place },
    { status, nowUs, bucket: queue.bucket(nowUs), limits, headCost: queue.headCost, pace },
  )
  if (!isAheadAtLeast) return estimate
  const note = `At least ${ahead} jobs are ahead of it, in a list too long to search completely: this is the earliest start.`
  return { ...estimate, assumptions: [...estimate.assumptions, note] }
}

/** BullMQ's latest events since a time. */
class QueueEventsReading {
  readonly #events: Answer<StreamReply>

  /** @param sinceMs on Redis's clock */
  constructor(base: string, sinceMs: number, batch: Batch) {
    const since = Math.max(0, Math.floor(sinceMs))
    this.#events = batch.add('xrevrange', `${base}events`, '+', since, 'COUNT', EVENTS)
  }

  /** Oldest first. */
  #entries(): StreamEntry[] {
    return streamEntries(this.#events()).reverse()
  }

  /** When BullMQ's pause was set and lifted, oldest first. */
  switches(): PauseMark[] {
    return this.#entries().flatMap(({ atMs, fields: { event } }) =>
      event === 'paused' || event === 'resumed' ? [{ atMs, paused: event === 'paused' }] : [],
    )
  }

  /** When a job was last added to the waiting jobs, up to a time. ms */
  waitingSince(jobId: string, untilMs: number): number | undefined {
    const went = this.#entries().findLast(
      ({ atMs, fields }) => fields.event === 'waiting' && fields.jobId === jobId && atMs <= untilMs,
    )
    return went?.atMs
  }
}
