import { splitQueueLimits } from '../limits/queue-limits.ts'
import {
  fieldsInForce,
  type GroupCounts,
  type GroupState,
  type GroupStatus,
  readEntries,
  type StoredEntry,
} from '../queue/groups.ts'
import { headAgeMs } from '../queue/meter-state.ts'
import { intervalUs, parseRate } from '../rate.ts'
import {
  decodeGroups,
  GROUP_FIELDS,
  type GroupDefaults,
  type GroupFields,
  type GroupOverride,
} from '../shape/groups.ts'
import { AgeingOrder } from './ageing.ts'
import { type Answer, Batch, type BatchClient } from './batch.ts'
import { type Bucket, slotOf } from './bucket.ts'
import { PLACES_FIELDS, PlacesReading } from './group-bound.ts'
import { type GroupHolder, groupHolders } from './group-holders.ts'
import { HEAD_FIELDS } from './head.ts'
import { jobCostOf } from './job-cost.ts'
import { groupIdOf } from './job-group.ts'
import { type JobRow, JobRowReading } from './jobs.ts'
import { askForGroupLimits, type HoldingLimit } from './limit-reading.ts'
import { redisTime } from './redis-time.ts'

export type { GroupCounts } from '../queue/groups.ts'

/** A group as it stands beside the others. */
export interface GroupRow extends GroupState {
  /** For how long its next job has been ready to leave, ms; undefined where it has none. */
  readonly headAgeMs: number | undefined
  /** Its part of the waiting jobs of all groups, 0 to 1. */
  readonly share: number
}

/** The groups of a queue that are worth a look. */
export interface GroupsView {
  readonly at: Date
  readonly counts: GroupCounts
  /** Waiting jobs of all groups. */
  readonly waiting: number
  /** Those whose next job has been ready longest. */
  readonly oldest: readonly GroupRow[]
  /** Those with the most waiting jobs: looked for among 100 jobs spaced over all that wait, so one may be missed. */
  readonly largest: readonly GroupRow[]
  /** Those held by their rate, their running jobs or a pause; of each kind the first that are due. */
  readonly held: readonly GroupRow[]
}

/** One group, and its next jobs. */
export interface GroupDetail extends GroupRow {
  readonly jobs: readonly JobRow[]
  /** The jobs that hold its places, at most 20, where all of these are taken (`maxed`); else none. */
  readonly holders: readonly GroupHolder[]
}

/** Waiting jobs that are looked at to find groups: the first, and as many spaced over the rest. */
const SAMPLE = 100
/** BullMQ's score of a prioritized job is its priority times this, plus a counter; those of groups are below it. */
const BAND = 2 ** 32

const KEYS = ['ready', 'limited', 'stale', 'full', 'paused'] as const
type Key = (typeof KEYS)[number]
const STATUS_OF: Readonly<Record<Key, GroupStatus>> = {
  ready: 'waiting',
  limited: 'limited',
  stale: 'limited',
  full: 'maxed',
  paused: 'paused',
}

/** So many groups in each state are read. */
export const FIRST_GROUPS = 16

/** How many groups of a queue are in each state, and which go first. */
export class GroupCountsReading {
  readonly #sizes: Readonly<Record<Key, Answer<number>>>
  readonly #ungrouped: Answer<string | null>
  readonly #heldUngrouped: Answer<string | null>
  readonly #firsts: Readonly<Record<Key, Answer<string[]>>>
  readonly #jobs: Answer<number>

  constructor(base: string, batch: Batch) {
    const sizes = KEYS.map((key) => [key, batch.add<number>('zcard', `${base}meta:groups:${key}`)])
    this.#sizes = Object.fromEntries(sizes) as Record<Key, Answer<number>>
    // Jobs without a group are one group without a name.
    this.#ungrouped = batch.add('zscore', `${base}meta:groups:ready`, '')
    this.#heldUngrouped = batch.add('zscore', `${base}meta:groups:limited`, '')
    const firsts = KEYS.map((key) => {
      const scores = key === 'limited' ? ['WITHSCORES'] : []
      return [key, batch.add<string[]>('zrange', `${base}meta:groups:${key}`, 0, FIRST_GROUPS - 1, ...scores)]
    })
    this.#firsts = Object.fromEntries(firsts) as Record<Key, Answer<string[]>>
    this.#jobs = batch.add('zcount', `${base}prioritized`, '-inf', `(${BAND}`)
  }

  /** Waiting jobs with a group. */
  get jobs(): number {
    return this.#jobs()
  }

  /**
   * Where all groups are held, the first slot of one, µs; Infinity where that is not known. 0 where one is in line, or
   * may be, or where jobs without a group are not held.
   * @param waiting of the queue
   */
  heldUntilUs(waiting: number): number {
    const { ready, stale } = this.#sizes
    if (ready() + stale() > 0 || this.plainMayGo(waiting)) return 0
    return Number(this.#firsts.limited().flat()[1] ?? Number.POSITIVE_INFINITY)
  }

  /**
   * Whether jobs without a group wait, and are not held.
   * @param waiting of the queue
   */
  plainMayGo(waiting: number): boolean {
    return waiting > this.jobs && this.#heldUngrouped() === null
  }

  /** The first groups in each state, in the order in which they go; '' for the jobs without a group. */
  firsts(): Readonly<Record<Key, readonly string[]>> {
    const { ready, limited, stale, full, paused } = this.#firsts
    const slots = limited().flat()
    return {
      ...{ ready: ready(), stale: stale(), full: full(), paused: paused() },
      limited: slots.filter((_, i) => i % 2 === 0),
    }
  }

  /** Of the groups that are held, the one that goes first, as far as that is known; '' for the jobs without a group. */
  get firstHeld(): string | undefined {
    const { limited, full, paused } = this.firsts()
    return [limited, full, paused].find((ids) => ids.length > 0)?.[0]
  }

  counts(): GroupCounts {
    const { ready, limited, stale, full, paused } = this.#sizes
    const waiting = ready() - (this.#ungrouped() === null ? 0 : 1)
    return { waiting, limited: limited() + stale(), maxed: full(), paused: paused() }
  }
}

/** What is read of one group, and what follows from it. Its score in a state is a time, µs, or a tag. */
export class GroupReading {
  readonly id: string
  readonly #base: string
  readonly #waiting: Answer<number>
  readonly #delayed: Answer<number>
  readonly #first: Answer<string[]>
  readonly #scores: Readonly<Record<Key, Answer<string | null>>>
  readonly #settings: Answer<string | null>
  readonly #running: Answer<number>
  readonly #tracked: Answer<string | null>
  readonly #bucket: Answer<string | null>
  #head: Answer<(string | null)[]> | undefined
  #aged: string | undefined
  #limits: Answer<readonly HoldingLimit[]> = () => []

  constructor(base: string, id: string, batch: Batch) {
    this.id = id
    this.#base = base
    this.#waiting = batch.add('zcard', `${base}meta:group:jobs:${id}`)
    // As lua/groups/later.lua stores them.
    const later = `${Buffer.byteLength(id)}:${id}`
    this.#delayed = batch.add('zlexcount', `${base}meta:groups:later`, `[${later}:`, `(${later};`)
    this.#first = batch.add('zrange', `${base}meta:group:jobs:${id}`, 0, 0)
    const scores = KEYS.map((key) => [key, batch.add<string | null>('zscore', `${base}meta:groups:${key}`, id)])
    this.#scores = Object.fromEntries(scores) as Record<Key, Answer<string | null>>
    this.#settings = batch.add('hget', `${base}meta:groups:settings`, id)
    this.#running = batch.add('scard', `${base}meta:group:held:${id}`)
    this.#tracked = batch.add('hget', `${base}meta:groups`, 'tracked')
    this.#bucket = batch.add('get', `${base}meta:group:bucket:${id}`)
  }

  /** Finds its next job, where jobs age: it need not be the first of its line. */
  async age(order: AgeingOrder | undefined): Promise<void> {
    this.#aged = await order?.first({ set: `${this.#base}meta:group:jobs:${this.id}`, from: 0, list: undefined })
  }

  /** Asks for its next job, and for how the limits per group stand. */
  more(batch: Batch, limits: string | undefined, nowUs: number): void {
    const id = this.#aged ?? this.#first()[0]
    if (id !== undefined) this.#head = batch.add('hmget', this.#base + id, ...HEAD_FIELDS)
    if (limits !== undefined) this.#limits = askForGroupLimits(batch, this.#base, limits, { group: this.id, nowUs })
  }

  /** The limits per group that hold it. An estimate charges them, so each needs fresh ones. */
  limits(): readonly HoldingLimit[] {
    return this.#limits()
  }

  /** The limit that holds its next job longer than its rate does. */
  #heldBy(fields: GroupFields, nowUs: number): string | undefined {
    const job = jobCostOf(this.#head?.()[1])
    const bucket = this.bucket(fields, nowUs)
    let [slotUs, name] = [bucket ? slotOf(bucket, job.cost, nowUs) : nowUs, undefined as string | undefined]
    for (const { name: limit, plan, costOf } of this.limits()) {
      const cost = costOf(job)
      const atUs = cost === 0 ? nowUs : nowUs + Math.ceil(plan.earliest(cost))
      if (atUs > slotUs) [slotUs, name] = [atUs, limit]
    }
    return name
  }

  /** Its bucket, by the rate in force; undefined where it has none. */
  bucket({ rate, burst = 1 }: GroupFields, nowUs: number): Bucket | undefined {
    if (rate === undefined) return undefined
    const rateUs = intervalUs(parseRate(rate))
    const [originUs = nowUs, tatUs = 0] = this.#bucket()?.split(' ').map(Number) ?? []
    return { originUs, tatUs, lastUs: 0, intervalUs: rateUs, burst, nowUs: nowUs - originUs }
  }

  /** Its last slot; undefined where it has no rate, or has idled. */
  get servedAt(): Date | undefined {
    const text = this.#bucket()
    return text === null ? undefined : new Date(Number(text.split(' ')[0]) / 1000)
  }

  headAgeMs(nowUs: number): number | undefined {
    return this.#head && headAgeMs(this.#head(), nowUs)
  }

  state(defaults: GroupDefaults, nowUs: number, places?: PlacesReading): GroupState {
    const text = this.#settings()
    const stored = text === null ? {} : (JSON.parse(text) as { fields: Record<string, StoredEntry> }).fields
    const overrides = readEntries(stored, nowUs / 1000)
    const key = KEYS.find((one) => this.#scores[one]() !== null)
    const { paused, limited } = overrides
    const held = paused ?? limited
    const slotUs = key === 'limited' ? Number(this.#scores.limited()) : undefined
    const inForce = fieldsInForce(defaults, overrides)
    const isLimited = !held && (key === 'limited' || key === 'stale')
    return {
      id: this.id,
      at: new Date(nowUs / 1000),
      status: paused ? 'paused' : limited ? 'limited' : key ? STATUS_OF[key] : 'idle',
      waiting: this.#waiting(),
      delayed: this.#delayed(),
      active: this.#tracked() === '1' ? this.#running() : undefined,
      until: held ? held.until : slotUs === undefined ? undefined : new Date(slotUs / 1000),
      heldBy: isLimited ? this.#heldBy(inForce, nowUs) : undefined,
      bound: places?.boundOf(defaults, inForce, this.#waiting() + this.#delayed(), held !== undefined),
      inForce,
      overrides,
    }
  }
}

/** @param count how many groups of each kind; undefined for a queue whose shape has no groups */
export async function groupsOf(redis: BatchClient, base: string, count: number): Promise<GroupsView | undefined> {
  const first = new Batch(redis, base)
  const time = redisTime(first)
  const stored = first.add<(string | null)[]>('hmget', `${base}meta:shape`, ...POLICY_FIELDS)
  const counts = new GroupCountsReading(base, first)
  const size = first.add<number>('zcount', `${base}prioritized`, '-inf', `(${BAND}`)
  const heads = first.add<string[]>('zrange', `${base}prioritized`, 0, SAMPLE - 1)
  const ofState = (key: Key) => first.add<string[]>('zrange', `${base}meta:groups:${key}`, 0, count - 1)
  const held = (['limited', 'full', 'paused'] as const).map((key) => [STATUS_OF[key], ofState(key)] as const)
  await first.run()
  const policy = policyOf(stored())
  if (!policy) return undefined
  const waiting = size()
  const [old = [], sampled = []] = await groupIdsOf(redis, base, heads(), await spacedIds(redis, base, waiting))
  const counted = new Map(held.flatMap(([status, ids]) => ids().map((id) => [id, status] as const)))
  const known = new Set([...distinct(old, count), ...mostFrequent(sampled, count), ...counted.keys()])
  const rows = await rowsOf(redis, base, [...known], { ...policy, nowUs: time(), waiting })
  const isHeld = ({ status }: GroupRow) => status !== 'waiting' && status !== 'idle'
  const top = (by: (row: GroupRow) => number) => rows.toSorted((one, other) => by(other) - by(one)).slice(0, count)
  return {
    at: new Date(time() / 1000),
    counts: countsAsSeen(counts.counts(), rows, { counted, listed: count }),
    waiting,
    oldest: top((row) => row.headAgeMs ?? 0),
    largest: top((row) => row.waiting),
    held: rows.filter(isHeld).slice(0, 3 * count),
  }
}

/**
 * A group changes its list only when jobs are asked for: one that was paused since is still in line. The counts are
 * those of the rows that are shown.
 * @param listing by which held list a group was found, and how many of each list were read
 */
function countsAsSeen(
  counts: GroupCounts,
  rows: readonly GroupRow[],
  { counted, listed }: { readonly counted: ReadonlyMap<string, GroupStatus>; readonly listed: number },
): GroupCounts {
  const seen: Record<keyof GroupCounts, number> = { ...counts }
  for (const { id, status } of rows) {
    const was = counted.get(id) ?? 'waiting'
    const mayBeListed = was === 'waiting' && status !== 'idle' && counts[status] > listed
    if (status === was || mayBeListed) continue
    if (was !== 'idle') seen[was] = Math.max(0, seen[was] - 1)
    if (status !== 'idle') seen[status] += 1
  }
  return seen
}

/** @returns undefined for a queue whose shape has no groups */
export async function groupDetail(
  redis: BatchClient,
  base: string,
  id: string,
  count: number,
): Promise<GroupDetail | undefined> {
  const first = new Batch(redis, base)
  const time = redisTime(first)
  const stored = first.add<(string | null)[]>('hmget', `${base}meta:shape`, ...POLICY_FIELDS)
  const size = first.add<number>('zcount', `${base}prioritized`, '-inf', `(${BAND}`)
  const reading = new GroupReading(base, id, first)
  const ids = first.add<string[]>('zrange', `${base}meta:group:jobs:${id}`, 0, count - 1)
  await first.run()
  const policy = policyOf(stored())
  if (!policy) return undefined
  await reading.age(orderOf(redis, base, policy, time()))
  const second = new Batch(redis)
  reading.more(second, policy.limits, time())
  const jobs = ids().map((jobId) => new JobRowReading(base, jobId, second))
  const places = placesOf(base, second, policy, time())
  await second.run()
  const surroundings = { ...policy, nowUs: time(), waiting: size(), places }
  const row = rowOf(reading, surroundings)
  const holders = row.status === 'maxed' ? await groupHolders(redis, base, id, time() / 1000) : []
  return { ...row, jobs: jobs.flatMap((job) => job.row() ?? []), holders }
}

/** All that is set for groups and is in force, by their ids. */
export async function groupSettingsOf(
  redis: BatchClient,
  base: string,
): Promise<Readonly<Record<string, GroupState['overrides']>>> {
  const batch = new Batch(redis, base)
  const time = redisTime(batch)
  const settings = batch.add<Readonly<Record<string, string>>>('hgetall', `${base}meta:groups:settings`)
  await batch.run()
  const set = Object.entries(settings()).map(([id, text]) => {
    const { fields } = JSON.parse(text) as { fields: Record<string, StoredEntry> }
    return [id, readEntries(fields, time() / 1000)] as const
  })
  return Object.fromEntries(set.filter(([, entries]) => Object.keys(entries).length > 0))
}

/** Of what is set for groups: the fields that `setGroup` takes. */
export function groupOverridesIn(
  settings: Readonly<Record<string, GroupState['overrides']>>,
): Readonly<Record<string, GroupOverride>> {
  const set = Object.entries(settings).map(([id, entries]) => {
    const fields = GROUP_FIELDS.flatMap((field) => (entries[field] ? [[field, entries[field].value]] : []))
    return [id, Object.fromEntries(fields) as GroupOverride] as const
  })
  return Object.fromEntries(set.filter(([, override]) => Object.keys(override).length > 0))
}

async function spacedIds(redis: BatchClient, base: string, waiting: number): Promise<string[]> {
  const batch = new Batch(redis)
  const ranks = Array.from({ length: Math.min(SAMPLE, waiting) }, (_, i) => Math.floor((i * waiting) / SAMPLE))
  const ids = [...new Set(ranks)].map((rank) => batch.add<string[]>('zrange', `${base}prioritized`, rank, rank))
  await batch.run()
  return ids.flatMap((answer) => answer())
}

/** The groups of the jobs of several lists, in order; jobs that have left meanwhile have none. */
async function groupIdsOf(redis: BatchClient, base: string, ...lists: readonly string[][]): Promise<string[][]> {
  const batch = new Batch(redis)
  const answers = lists.map((ids) => ids.map((id) => batch.add<string | null>('hget', base + id, 'opts')))
  await batch.run()
  return answers.map((list) => list.flatMap((answer) => groupIdOf(answer()) ?? []))
}

function distinct(ids: readonly string[], count: number): string[] {
  return [...new Set(ids)].slice(0, count)
}

function mostFrequent(ids: readonly string[], count: number): string[] {
  const seen = new Map<string, number>()
  for (const id of ids) seen.set(id, (seen.get(id) ?? 0) + 1)
  const sorted = [...seen].toSorted(([, one], [, other]) => other - one)
  return sorted.slice(0, count).map(([id]) => id)
}

const POLICY_FIELDS = ['groups', 'limits', 'priorityAgeingMs', 'mode', ...PLACES_FIELDS]

interface Policy {
  readonly defaults: GroupDefaults
  /** Those per group, as stored. */
  readonly limits: string | undefined
  /** undefined where jobs do not age. */
  readonly ageingMs: number | undefined
  /** What bounds its groups; undefined where nothing is refused. */
  readonly bounded: readonly (string | null)[] | undefined
}

/** undefined for a shape without groups. */
function policyOf([groups, limits, ageingMs, mode, ...bounded]: readonly (string | null)[]): Policy | undefined {
  if (!groups) return undefined
  return {
    defaults: decodeGroups(groups),
    limits: limits ? splitQueueLimits(limits).group : undefined,
    ageingMs: ageingMs && mode !== 'off' ? Number(ageingMs) : undefined,
    bounded: mode === 'off' ? undefined : bounded,
  }
}

function orderOf(redis: BatchClient, base: string, { ageingMs }: Policy, nowUs: number): AgeingOrder | undefined {
  return ageingMs === undefined ? undefined : new AgeingOrder(redis, base, ageingMs, nowUs)
}

interface Surroundings extends Policy {
  readonly nowUs: number
  /** Waiting jobs of all groups. */
  readonly waiting: number
}

async function rowsOf(
  redis: BatchClient,
  base: string,
  ids: readonly string[],
  surroundings: Surroundings,
): Promise<GroupRow[]> {
  const batch = new Batch(redis)
  const readings = ids.map((id) => new GroupReading(base, id, batch))
  await batch.run()
  const order = orderOf(redis, base, surroundings, surroundings.nowUs)
  await Promise.all(readings.map((reading) => reading.age(order)))
  const second = new Batch(redis)
  for (const reading of readings) reading.more(second, surroundings.limits, surroundings.nowUs)
  const places = placesOf(base, second, surroundings, surroundings.nowUs)
  await second.run()
  const rows = readings.map((reading) => rowOf(reading, { ...surroundings, places }))
  // Some may have been served meanwhile.
  return rows.filter(({ waiting }) => waiting > 0)
}

function placesOf(base: string, batch: Batch, { bounded }: Policy, nowUs: number): PlacesReading | undefined {
  return bounded && new PlacesReading(base, batch, bounded, nowUs)
}

function rowOf(
  reading: GroupReading,
  { defaults, nowUs, waiting, places }: Surroundings & { readonly places: PlacesReading | undefined },
): GroupRow {
  const state = reading.state(defaults, nowUs, places)
  const share = Math.min(1, state.waiting / Math.max(1, waiting))
  return { ...state, headAgeMs: reading.headAgeMs(nowUs), share }
}
