import { headAgeMs, type MeterState, meterStateOf } from '../queue/meter-state.ts'
import { DEAD_FIELD, LATENESS_BOUNDS_US, WAIT_BOUNDS_MS } from '../reports/start-counts.ts'
import { decodeGroups } from '../shape/groups.ts'
import { StoredShape } from '../shape/stored.ts'
import { AgeingOrder } from './ageing.ts'
import type { Answer, Batch, BatchClient } from './batch.ts'
import { type Bucket, levelOf, type MeterFields, meterFields, openBucket, PACKED_FIELDS } from './bucket.ts'
import { bypassOf } from './bypass.ts'
import { failingOf } from './failing.ts'
import { GroupHeadReading } from './group-head.ts'
import { GroupCountsReading, GroupReading } from './groups.ts'
import { HEAD_FIELDS, HeadReading, type JobFields } from './head.ts'
import { heldAt, mapCauses } from './held.ts'
import { jobCostOf } from './job-cost.ts'
import { groupIdOf } from './job-group.ts'
import { LargestGroupReading, NEARLY_FULL } from './largest-group.ts'
import { askForLimits, type QueueLimits } from './limit-reading.ts'
import type { Hold, QueueFacts, StartTotals } from './queue-status.ts'
import { shapeInForce } from './shape-in-force.ts'
import { headStartUs } from './start-estimate.ts'
import { workerRows } from './worker-rows.ts'

type Fields = Readonly<Record<string, string>>
type Counted = 'waitList' | 'prioritized' | 'delayed' | 'waitingChildren' | 'active' | 'completed' | 'failed'

/** BullMQ's score of a delayed job is its time in ms times this, plus a counter. */
const DELAYED_SCORE = 4096

/** What is read of one queue, and what follows from it. */
export class QueueReading {
  readonly name: string
  /** The queue's key prefix, with its colon. */
  readonly base: string
  readonly #meta: Answer<Fields>
  readonly #shape: Answer<Fields>
  readonly #meter: Answer<MeterFields>
  readonly #starts: Answer<Fields>
  readonly #workers: Answer<Fields>
  readonly #ids: Answer<string | null>
  readonly #counts: Readonly<Record<Counted, Answer<number>>>
  readonly #head: HeadReading
  #aged: string | undefined
  #agedFields: Answer<(string | null)[]> | undefined
  #delayedSoon: Answer<number> | undefined
  #firstDue: Answer<string[]> | undefined
  #oldest: OldestReading | undefined
  #limits: Answer<QueueLimits> | undefined
  #groups: GroupCountsReading | undefined
  #groupHead: GroupHeadReading | undefined
  #largest: LargestGroupReading | undefined
  /** Where all waiting jobs belong to groups that are held: the group that goes first. */
  #holder: GroupReading | undefined
  #inForce: { readonly shape: StoredShape; readonly concurrency: string | undefined } | undefined

  /** @param canSort as for {@link HeadReading} */
  constructor(name: string, base: string, batch: Batch, canSort?: boolean) {
    this.name = name
    this.base = base
    const hash = (key: string) => batch.add<Fields>('hgetall', base + key)
    this.#meta = hash('meta')
    this.#shape = hash('meta:shape')
    const meter = hash('meta:meter')
    const packed = batch.addBuffer<(Buffer | null)[]>('hmget', `${base}meta:meter`, ...PACKED_FIELDS)
    let known: MeterFields | undefined
    this.#meter = () => {
      known ??= meterFields(meter(), packed())
      return known
    }
    this.#starts = hash('meta:starts')
    this.#workers = hash('meta:workers')
    this.#ids = batch.add('get', `${base}id`)
    this.#counts = {
      waitList: batch.add('llen', `${base}wait`),
      prioritized: batch.add('zcard', `${base}prioritized`),
      delayed: batch.add('zcard', `${base}delayed`),
      waitingChildren: batch.add('zcard', `${base}waiting-children`),
      active: batch.add('llen', `${base}active`),
      completed: batch.add('zcard', `${base}completed`),
      failed: batch.add('zcard', `${base}failed`),
    }
    this.#head = new HeadReading(base, batch, canSort)
  }

  /** Asks for what depends on the first replies; most queues need nothing more. */
  more(batch: Batch, nowUs: number): void {
    this.#head.more(batch, this.#storedShape(nowUs)?.hasGroups === true)
    if (this.waiting === 0 && this.#counts.delayed() > 0) {
      this.#firstDue = batch.add('zrange', `${this.base}delayed`, 0, 0, 'WITHSCORES')
    }
    if (this.#mayStarve) this.#oldest = new OldestReading(this.base, batch, this.#counts.prioritized() > 0)
    const shape = this.#storedShape(nowUs)
    if (shape?.isLimited && shape.mode === 'enforce') {
      this.#limits = askForLimits(batch, this.base, shape.storedLimits, nowUs)
    }
    if (shape?.hasGroups) {
      this.#groups = new GroupCountsReading(this.base, batch)
      this.#groupHead = new GroupHeadReading(this.base, this.#groups, this.waiting)
      const isNearlyFull = this.waiting >= NEARLY_FULL * (shape.number('capacity') ?? Number.POSITIVE_INFINITY)
      const jobs = this.#counts.prioritized()
      if (isNearlyFull) this.#largest = new LargestGroupReading(this.base, batch, jobs)
    }
    const horizonMs = shape?.number('capacityHorizonMs')
    if (horizonMs === undefined) return
    const due = (Math.floor(nowUs / 1000) + horizonMs + 1) * DELAYED_SCORE - 1
    this.#delayedSoon = batch.add('zcount', `${this.base}delayed`, '-inf', due)
  }

  /** Finds the job that leaves next, where jobs age: it need not be the first of the list or the set. */
  async age(redis: BatchClient, nowUs: number): Promise<void> {
    const ageingMs = this.ageingMs(nowUs)
    const mayBeOther = this.waiting > 1 && this.#counts.prioritized() > 0
    if (ageingMs === undefined || this.storedGroups(nowUs) !== undefined || !mayBeOther) return
    const line = { set: `${this.base}prioritized`, from: 0, list: `${this.base}wait` }
    this.#aged = await new AgeingOrder(redis, this.base, ageingMs, nowUs).first(line)
  }

  /** Whether SORT_RO could read the head in one round trip; undefined where it was not tried. */
  get sorted(): boolean | undefined {
    return this.#head.sorted
  }

  /** Asks for what depends on the second replies. */
  last(batch: Batch): void {
    this.#oldest?.more(batch)
    this.#groupHead?.more(batch, this.#head.prioritized(), this.#head.sorted === true)
    this.#largest?.more(batch)
    const group = this.#groups && this.#groups.heldUntilUs(this.waiting) > 0 ? this.#groups.firstHeld : undefined
    if (group) this.#holder = new GroupReading(this.base, group, batch)
    if (this.#aged !== undefined) this.#agedFields = batch.add('hmget', this.base + this.#aged, ...HEAD_FIELDS)
  }

  /** Asks for what depends on the third replies. */
  end(batch: Batch): void {
    this.#groupHead?.last(batch)
    this.#largest?.last(batch)
  }

  get exists(): boolean {
    const isKept = [this.#meta, this.#shape, this.#meter].some((hash) => Object.keys(hash()).length > 0)
    return isKept || Object.values(this.#counts).some((count) => count() > 0)
  }

  /** BullMQ's pause. */
  get isPaused(): boolean {
    return this.#meta().paused !== undefined
  }

  get meter(): Fields {
    return this.#meter()
  }

  get waiting(): number {
    return this.#counts.waitList() + this.#counts.prioritized()
  }

  get headCost(): number | undefined {
    const fields = this.#nextFields
    return fields && jobCostOf(fields[1]).cost
  }

  /** Of the job that leaves next; in a queue with groups, of the first one. */
  get #nextFields(): readonly (string | null)[] | undefined {
    return this.#agedFields?.() ?? this.#head.head()?.fields
  }

  /** The bucket as a worker's next call would find it; undefined where jobs are not paced. */
  bucket(nowUs: number): Bucket | undefined {
    const shape = this.#storedShape(nowUs)
    const intervalUs = shape?.number('interval')
    if (!shape || intervalUs === undefined) return undefined
    const changedAtUs = shape.number('changedAt') ?? Number.POSITIVE_INFINITY
    const rule = { intervalUs, burst: shape.number('burst') ?? 1, mode: shape.mode, changedAtUs }
    return openBucket(this.#meter(), rule, nowUs)
  }

  /** The limits of the queue as a whole, as stored. */
  limits(nowUs: number): string | undefined {
    return this.#storedShape(nowUs)?.storedLimits
  }

  /** The limits per group of an enforced shape, as stored. */
  groupLimits(nowUs: number): string | undefined {
    const shape = this.#storedShape(nowUs)
    return shape?.mode === 'enforce' ? shape.storedGroupLimits : undefined
  }

  /** What applies to groups, as stored; undefined where the shape has none. */
  storedGroups(nowUs: number): string | undefined {
    return this.#storedShape(nowUs)?.storedGroups
  }

  /** undefined where jobs do not age. */
  ageingMs(nowUs: number): number | undefined {
    const shape = this.#storedShape(nowUs)
    return shape?.mode === 'off' ? undefined : shape?.number('priorityAgeingMs')
  }

  /** Since when the rate and the burst are in force; 0 where there is no shape. */
  changedAtMs(nowUs: number): number {
    return (this.#storedShape(nowUs)?.number('changedAt') ?? 0) / 1000
  }

  status(nowUs: number): QueueFacts {
    const shape = this.#storedShape(nowUs)
    const bucket = this.bucket(nowUs)
    const counts = this.#counts
    const meter = this.#meter()
    const state = meterStateOf({
      nowUs,
      shape,
      depth: this.#depth(shape, nowUs),
      waiting: this.waiting,
      delayed: counts.delayed(),
      waitingChildren: counts.waitingChildren(),
      active: counts.active(),
      paused: this.isPaused,
      globalConcurrency: this.#globalConcurrency,
      level: bucket ? levelOf(bucket) : 0,
      groups: this.#groups?.counts(),
      nextSlotUs: this.#nextSlotUs(bucket, shape, nowUs),
      counter: (field) => (meter[field] === undefined ? undefined : Number(meter[field])),
      head: this.#headFields(nowUs),
    })
    const number = (field: string) => Number(meter[field] ?? 0)
    const dueUs = this.#dueUs
    const { hold, heldMs, wantedMs } = this.#held(state, bucket, shape, nowUs)
    // The state is a fresh object: with very many queues, a copy would be most of the work.
    return Object.assign(state, {
      hold,
      heldMs,
      name: this.name,
      oldestAgeMs: this.#oldestAgeMs(state, nowUs),
      nextDueAt: dueUs === undefined ? undefined : new Date(dueUs / 1000),
      acceptedTotal: Number(this.#ids() ?? 0),
      departedTotal: number('departedTotal'),
      refusedLateTotal: number('refusedLate'),
      refundedTotal: number('refundedTotal'),
      forfeitedTotal: number('forfeitedTotal'),
      prioritized: counts.prioritized(),
      grouped: this.#groups?.jobs,
      bypassedTotal: number('bypassedTotal'),
      ...{ completedKept: counts.completed(), failedKept: counts.failed() },
      ...{ samplesDeletedAt: dateOf(meter.shedAt), lastRefusedAt: dateOf(meter.refusedAt) },
      largestGroup: this.#largest?.largest(),
      ...this.#reported(wantedMs, nowUs),
    })
  }

  #oldestAgeMs({ headAgeMs: ageMs }: MeterState, nowUs: number): number | undefined {
    const { plain, front } = this.#fronts
    const others = [plain, front, this.#head.last()].map((fields) => headAgeMs(fields ?? [], nowUs))
    return greatest([ageMs, this.#oldest?.ageMs(nowUs), ...others])
  }

  /** What workers have reported. */
  #reported(wantedMs: number, nowUs: number) {
    const starts = this.#starts()
    const number = (field: string) => Number(starts[field] ?? 0)
    const workers = workerRows(this.#workers(), nowUs / 1000, wantedMs)
    return {
      completedTotal: number('completed'),
      failedTotal: number('failed'),
      failedAttemptsTotal: number('failedAttempts'),
      failing: failingOf(workers),
      bypass: bypassOf(this.#meter(), workers, nowUs),
      starts: startTotals(starts),
      workers,
      deadLetterQueues: deadLetterQueues(starts),
    }
  }

  #held(state: MeterState, bucket: Bucket | undefined, shape: StoredShape | undefined, nowUs: number) {
    const [ageMs, dueUs] = [state.headAgeMs, this.#dueUs]
    const held = heldAt(this.#meter(), {
      nowUs,
      // A due job is promoted by the next worker that looks.
      isWaiting: this.waiting > 0 || (dueUs !== undefined && dueUs <= nowUs),
      active: state.active,
      headReadyUs: ageMs === undefined ? dueUs : nowUs - ageMs * 1000,
      isPaused: state.paused || state.pausedUntil !== undefined,
      pausedUntilUs: state.paused ? undefined : shape?.pausedUntilUs,
    })
    const hold = held.hold && this.#heldByGroup(held.hold, bucket, shape, nowUs)
    // Workers that find only jobs of groups that are held take none, and have nothing to report.
    return { ...held, hold, wantedMs: hold?.cause === 'workers' ? held.wantedMs : 0 }
  }

  /** Whether a job older than the one that leaves next may be waiting. */
  get #mayStarve(): boolean {
    return this.waiting > 1 && (this.#counts.prioritized() > 0 || this.#head.isLifo)
  }

  get #dueUs(): number | undefined {
    const score = this.#firstDue?.().flat()[1]
    return score === undefined ? undefined : Math.floor(Number(score) / DELAYED_SCORE) * 1000
  }

  /** As `lua/reports/queue-head.lua`. */
  #headFields(nowUs: number): JobFields {
    return this.#groupHead?.fields(this.#fronts, nowUs) ?? this.#nextFields ?? []
  }

  get #fronts() {
    const front = this.#head.prioritized()
    const isPlain = groupIdOf(front?.[1]) === undefined
    return { plain: this.#head.listed() ?? (isPlain ? front : this.#oldest?.prioritized()), front }
  }

  #storedShape(nowUs: number): StoredShape | undefined {
    const stored = this.#shape()
    if (stored.born === undefined) return undefined
    if (this.#inForce) return this.#inForce.shape
    const { fields, bullmq } = shapeInForce(stored, this.#meta().concurrency, nowUs)
    this.#inForce = { shape: new StoredShape(fields), concurrency: bullmq }
    return this.#inForce.shape
  }

  /** The limit that BullMQ's scripts apply, as the next call will find it. */
  get #globalConcurrency(): number | undefined {
    const { concurrency } = this.#inForce ?? this.#meta()
    return concurrency === undefined ? undefined : Number(concurrency)
  }

  /** As `occupancy.depth` and `occupancy.claimed` of `lua/admission/occupancy.lua`; without a shape, the ready jobs. */
  #depth(shape: StoredShape | undefined, nowUs: number): number {
    if (!shape) return this.waiting
    const claimed = (shape.number('claimedUntil') ?? 0) < nowUs ? 0 : (shape.number('claimed') ?? 0)
    const delayed = this.#delayedSoon?.() ?? this.#counts.delayed()
    return this.waiting + delayed + this.#counts.waitingChildren() + claimed
  }

  /**
   * What holds the next job where all waiting jobs belong to groups that are held. Workers note the rate or a limit,
   * whether it is that of the queue or of a group, and nothing of jobs that came later: these wake none of them.
   */
  #heldByGroup(hold: Hold, bucket: Bucket | undefined, shape: StoredShape | undefined, nowUs: number): Hold {
    const { cause, until, since } = hold
    if (!this.#holder || shape?.mode !== 'enforce' || this.#isOfQueue(hold, shape)) return hold
    const groupUs = this.#groups?.heldUntilUs(this.waiting) ?? 0
    if (groupUs <= (this.#queueSlotUs(bucket, shape, nowUs) ?? nowUs)) return hold
    const { id, status, overrides } = this.#holder.state(decodeGroups(shape.storedGroups ?? ''), nowUs)
    if (status === 'paused' || overrides.limited)
      return { cause: 'pause', group: id, since, ...(until ? { until } : {}) }
    if (status === 'maxed') return { cause: 'concurrency', group: id, since }
    // It is read after the others: by now it may be in line, or have no job.
    if (status !== 'limited' || groupUs === Number.POSITIVE_INFINITY) return hold
    const isNoted = cause === 'rate' || cause === 'limits'
    const noted = isNoted ? hold : ({ cause: shape.storedGroupLimits ? 'limits' : 'rate', since } as const)
    return { ...noted, group: id, until: new Date(groupUs / 1000) }
  }

  #isOfQueue({ cause, limit }: Hold, shape: StoredShape): boolean {
    if (cause === 'pause') return true
    if (cause === 'concurrency') return this.#counts.active() >= (this.#globalConcurrency ?? Number.POSITIVE_INFINITY)
    return limit !== undefined && !shape.limits.some(({ name, per }) => name === limit && per === 'group')
  }

  /** When the rate and the limits of the queue let its next job go, whatever its groups do. */
  #queueSlotUs(bucket: Bucket | undefined, shape: StoredShape, nowUs: number): number | undefined {
    const fromUs = Math.max(nowUs, shape.pausedUntilUs)
    const job = jobCostOf(this.#nextFields?.[1])
    return headStartUs({ job, bucket, limits: this.#limits?.() ?? UNLIMITED, fromUs }, nowUs)
  }

  #nextSlotUs(bucket: Bucket | undefined, shape: StoredShape | undefined, nowUs: number): number | undefined {
    if (shape?.mode !== 'enforce') return bucket && Math.max(nowUs, shape?.pausedUntilUs ?? 0)
    const slotUs = this.#queueSlotUs(bucket, shape, nowUs)
    const isOpen = slotUs !== undefined || (!bucket && !shape.isLimited)
    if (!this.#groups || !isOpen || this.waiting === 0) return slotUs
    const groupUs = this.#groups.heldUntilUs(this.waiting)
    if (groupUs === 0) return slotUs
    return groupUs === Number.POSITIVE_INFINITY ? undefined : Math.max(nowUs, slotUs ?? 0, groupUs)
  }
}

function dateOf(us: string | undefined): Date | undefined {
  return us === undefined ? undefined : new Date(Number(us) / 1000)
}

const UNLIMITED: QueueLimits = { holding: [], taken: undefined }

function greatest(numbers: readonly (number | undefined)[]): number | undefined {
  const known = numbers.filter((number) => number !== undefined)
  return known.length === 0 ? undefined : Math.max(...known)
}

type Bucketing = readonly (readonly [le: number, field: string])[]

/** The buckets of a histogram in `…:meta:starts`: upper bounds in ms, Infinity last, and their fields. */
function bucketing(letter: string, bounds: readonly number[], unitsPerMs: number): Bucketing {
  const finite = bounds.map((bound) => [bound / unitsPerMs, `${letter}:${bound}`] as const)
  return [...finite, [Number.POSITIVE_INFINITY, `${letter}:inf`]]
}

const LATENESS = bucketing('l', LATENESS_BOUNDS_US, 1000)
const WAITS = bucketing('w', WAIT_BOUNDS_MS, 1)

/** Reads the hash `…:meta:starts`, which workers fill. Missing fields are 0. */
function startTotals(fields: Readonly<Record<string, string>>): StartTotals {
  const number = (field: string) => Number(fields[field] ?? 0)
  const counts = (buckets: Bucketing) => buckets.map(([le, field]) => [le, number(field)] as const)
  return {
    count: number('count'),
    early: number('early'),
    latenessSumMs: number('latenessUs') / 1000,
    lateness: counts(LATENESS),
    waits: number('waits'),
    waitSumMs: number('waitMs'),
    waitedMs: mapCauses((cause) => number(`waited:${cause}`)),
    wait: counts(WAITS),
  }
}

/** A worker reports its queue of dead letters as a field that is not counted (`src/reports/worker-reports.ts`). */
function deadLetterQueues(starts: Fields): string[] {
  const fields = Object.keys(starts).filter((field) => field.startsWith(DEAD_FIELD))
  return fields.map((field) => field.slice(DEAD_FIELD.length)).sort()
}

/** BullMQ's score of a prioritized job is its priority times this, plus a counter. */
const PRIORITY_SCORE = 2 ** 32
/** From each of these priorities on, the first job of the next priority in use is read. */
const PRIORITIES = [1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 50, 100, 1000, 10_000]

/**
 * The jobs of a queue that may have waited longest. The jobs that leave next are the oldest only where none has a
 * priority or was added with `lifo`.
 */
class OldestReading {
  readonly #base: string
  readonly #last: Answer<string | null>
  readonly #firsts: readonly Answer<string[]>[]
  #jobs: ReadonlyMap<string, Answer<JobFields>> = new Map()

  constructor(base: string, batch: Batch, hasPriorities: boolean) {
    this.#base = base
    this.#last = batch.add('lindex', `${base}wait`, 0)
    this.#firsts = (hasPriorities ? PRIORITIES : []).map((priority) =>
      batch.add('zrange', `${base}prioritized`, priority * PRIORITY_SCORE, '+inf', 'BYSCORE', 'LIMIT', 0, 1),
    )
  }

  more(batch: Batch): void {
    const ids = new Set([this.#last(), ...this.#firsts.map((first) => first()[0])].filter((id) => id != null))
    this.#jobs = new Map([...ids].map((id) => [id, batch.add('hmget', this.#base + id, ...HEAD_FIELDS)]))
  }

  /** The first job with a priority, which has no group. */
  prioritized(): JobFields | undefined {
    const [id] = this.#firsts[0]?.() ?? []
    return id === undefined ? undefined : this.#jobs.get(id)?.()
  }

  /** How long the oldest of them has been ready, ms. */
  ageMs(nowUs: number): number | undefined {
    const ages = [...this.#jobs.values()].flatMap((job) => headAgeMs(job(), nowUs) ?? [])
    return ages.length === 0 ? undefined : Math.max(...ages)
  }
}
