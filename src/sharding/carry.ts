import { InvalidShapeError, MoveError } from '../errors.ts'
import { applyFeedback, encodeFeedbackRequest } from '../feedback/request.ts'
import type { Found } from '../feedback/source.ts'
import type { LimitSettings } from '../inspect/limit-values.ts'
import type { GroupState } from '../queue/groups.ts'
import type { MeterState } from '../queue/meter-state.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import { encodeGroupOverride, GROUP_FIELDS } from '../shape/groups.ts'
import type { ShapeOverride } from '../shape/shape.ts'
import type { EffectiveShape, StoredFeedback } from '../shape/stored.ts'
import type { MoveRecord } from './move-record.ts'
import { inspectorOf } from './parts.ts'
import type { ShardedQueue } from './queue.ts'
import { splitOverride } from './shapes.ts'

/** How long the next job of a scheduler is put off before it is removed, ms. */
const PUT_OFF_MS = 30 * 86_400_000
/** BullMQ's codes: there is no such job, or it is not delayed. */
const NOT_DELAYED = [-1, -3]

/**
 * Checks what the new queue must be able to take over.
 * @throws MoveError, InvalidShapeError
 */
export function checkShapes(from: ShardedQueue, to: ShardedQueue, old: EffectiveShape, renewed: EffectiveShape): void {
  for (const field of ['groups', 'rate'] as const) {
    if (!old.declared[field] || renewed.declared[field]) continue
    const given = JSON.stringify(old.declared[field].value)
    throw new MoveError(
      to.name,
      'shape',
      `declares no shape.${field}: expected one, as queue "${from.name}" has ${given}`,
    )
  }
  const overrides = overridesOf(old)
  if (overrides.rate && !renewed.declared.rate) {
    throw new InvalidShapeError(
      `queue "${to.name}" must declare a rate to be given the override of queue "${from.name}"; it has none`,
    )
  }
  if (Object.keys(overrides).length > 0) splitOverride(overrides, to.shards)
}

function overridesOf({ overrides }: EffectiveShape): ShapeOverride {
  return Object.fromEntries(Object.entries(overrides).map(([field, { value }]) => [field, value]))
}

/** Copies overrides of the shape, with author, reason and end. Overrides of the new queue stay. @returns how many */
export async function copyOverrides(from: ShardedQueue, to: ShardedQueue): Promise<number> {
  const [{ shape, each }, own] = await Promise.all([from.meter(), to.getShape()])
  let copied = 0
  for (const [field, { value, by, reason, until }] of Object.entries(shape?.overrides ?? {})) {
    if (own?.overrides[field]) continue
    await to.setShape({ [field]: value }, { by, reason, ...ttlOf(until, each[0]?.at) })
    copied += 1
  }
  return copied
}

/** Copies settings of single groups in the same way, without temporary holds. @returns for how many */
export async function copyGroups(from: ShardedQueue, to: ShardedQueue): Promise<number> {
  const copies = from.each.map(async (shard) => {
    const inspector = await inspectorOf(shard)
    const [settings, { at }] = await Promise.all([inspector.groupSettings(shard.name), shard.meter()])
    let copied = 0
    for (const [id, entries] of Object.entries(settings)) {
      copied += (await copyGroup(await to.queueOfGroup(id), id, { entries, at })) ? 1 : 0
    }
    return copied
  })
  return (await Promise.all(copies)).reduce((sum, copied) => sum + copied, 0)
}

/** Copies values of limits that the new queue has, too, in the same way. */
export async function copyLimits(from: ShardedQueue, to: ShardedQueue): Promise<void> {
  const copies = from.each.map(async (shard) => {
    const [settings, { at }] = await Promise.all([(await inspectorOf(shard)).limitSettings(shard.name), shard.meter()])
    for (const one of settings) await copyLimit(await to.queueOfGroup(one.keys.group as string), one, at)
  })
  await Promise.all(copies)
}

async function copyLimit(target: ShapedQueue, { limit, keys, overrides }: LimitSettings, at: Date): Promise<void> {
  const isKnown = (await target.getShape())?.limits?.some(({ name, by }) => name === limit && by !== undefined)
  if (!isKnown) return
  const own = (await target.getLimit(limit, keys)).overrides
  for (const [field, { value, by, reason, until }] of Object.entries(overrides)) {
    // Feedback finds its rates again.
    if (own[field] || field === 'paced') continue
    const held = LIMIT_HOLDS[field]?.(value)
    const change = { by, reason, ...ttlOf(until, at) }
    if (held === undefined) await target.setLimit(limit, keys, { [field]: value }, change)
    else await target.backend.store.changeLimit(limit, keys, { [field]: held }, change, change.ttlMs)
  }
}

/** Feedback holds of a value, as stored. */
const LIMIT_HOLDS: Readonly<Record<string, (value: unknown) => unknown>> = {
  limited: (value) => value,
  slowed: (value) => encodeGroupOverride({ rate: value as string }).rate,
}

interface SetForGroup {
  readonly entries: GroupState['overrides']
  /** The time of its Redis. */
  readonly at: Date
}

async function copyGroup(target: ShapedQueue, id: string, { entries, at }: SetForGroup): Promise<boolean> {
  const fields = [...GROUP_FIELDS, 'paused'].filter((field) => entries[field])
  if (fields.length === 0) return false
  const { overrides } = await target.getGroup(id)
  for (const field of fields.filter((one) => !overrides[one])) {
    const { value, by, reason, until } = entries[field] as GroupState['overrides'][string]
    const change = { by, reason, ...ttlOf(until, at) }
    if (field === 'paused') await target.pauseGroup(id, change)
    else await target.setGroup(id, { [field]: value }, change)
  }
  return true
}

function ttlOf(until: Date | undefined, now = new Date()): { readonly ttlMs?: number } {
  return until ? { ttlMs: Math.max(1, until.getTime() - now.getTime()) } : {}
}

type Scheduler = Awaited<ReturnType<ShapedQueue['getJobSchedulers']>>[number]

/** A scheduler, and its target. */
interface Carried {
  readonly scheduler: Scheduler
  readonly old: ShapedQueue
  readonly target: ShapedQueue
}

/**
 * Schedulers of the old queue. The scheduler of a group goes to the group's shard, any other to the shard with the same
 * number.
 */
async function schedulersOf(from: ShardedQueue, to: ShardedQueue): Promise<Carried[]> {
  const found = from.each.map(async (old, shard) =>
    (await old.getJobSchedulers()).map(async (scheduler) => {
      const { group } = (scheduler.template?.opts ?? {}) as { readonly group?: { readonly id: string } }
      const target = group ? await to.queueOfGroup(group.id) : (to.each[shard % to.shards] as ShapedQueue)
      return { scheduler, old, target }
    }),
  )
  return Promise.all((await Promise.all(found)).flat())
}

/** @throws MoveError if two schedulers of different shards have one id, and would be in one shard */
export async function checkSchedulers(from: ShardedQueue, to: ShardedQueue): Promise<void> {
  const places = new Set<string>()
  for (const { scheduler, target } of await schedulersOf(from, to)) {
    const shard = to.each.indexOf(target)
    const place = `${shard}:${scheduler.key}`
    if (places.has(place)) {
      throw new MoveError(
        from.name,
        'schedulers',
        `has two schedulers "${scheduler.key}" that would both be in shard ${shard} of queue "${to.name}": ` +
          'expected different ids; rename one of them',
      )
    }
    places.add(place)
  }
}

/**
 * Moves schedulers whose next jobs are not due yet. Due jobs start in the old queue, and a later call moves the jobs
 * that follow.
 */
export async function moveSchedulers(
  from: ShardedQueue,
  to: ShardedQueue,
  record: MoveRecord,
): Promise<{ readonly moved: number; readonly left: number }> {
  const all = await schedulersOf(from, to)
  let moved = 0
  for (const carried of all) moved += (await moveScheduler(carried, record)) ? 1 : 0
  return { moved, left: all.length - moved }
}

/**
 * The new queue, which is paused, gets the next job before the old one gives it up. If that job starts after all, the
 * next call places its successor.
 */
async function moveScheduler(carried: Carried, record: MoveRecord): Promise<boolean> {
  const { scheduler, old } = carried
  const { key, next } = scheduler
  const job = await old.getJob(`repeat:${key}:${next}`)
  const state = await job?.getState()
  if (job && state === 'delayed') {
    const { repeat } = job.opts as { readonly repeat?: { readonly count?: number } }
    if (!(await place(carried, repeat?.count, record)) || !(await putOff(job))) return false
    await old.removeJobScheduler(key)
    return true
  }
  if (job && state !== 'completed' && state !== 'failed') return false
  // The successor is stored before a job begins. Without one, this was the last job.
  if ((await old.getJobScheduler(key))?.next !== next) return false
  await old.removeJobScheduler(key)
  return true
}

/** Whether it can no longer start in the old queue. */
async function putOff(job: { changeDelay(ms: number): Promise<void> }): Promise<boolean> {
  try {
    await job.changeDelay(PUT_OFF_MS)
    return true
  } catch (error) {
    if (NOT_DELAYED.includes((error as { code?: number }).code ?? 0)) return false
    throw error
  }
}

/** @returns whether the new queue's scheduler has its next job at the time of the old one's, or is another one */
async function place({ scheduler, target }: Carried, count: number | undefined, record: MoveRecord): Promise<boolean> {
  const { key, name, next, every, pattern, tz, offset, limit, startDate, endDate, template } = scheduler
  const found = await target.getJobScheduler(key)
  // The producers have given it another schedule.
  if (found && !isSameSchedule(found, scheduler)) return true
  // With replicas to wait for, only this call's own confirmation counts: an earlier call may have failed to get one.
  if (found?.next === next && !target.backend.store.memory.stored?.durability) return true
  if (found) await record.drop(target, key, `repeat:${key}:${found.next}`)
  // Without a start, a job of `every` would be due at once.
  const repeat = every ? { every: Number(every), offset, startDate: next } : { pattern, tz, startDate }
  const ends = { limit, endDate, count: count && count > 1 ? count - 1 : undefined }
  const job = defined({ name, ...template })
  await target.upsertJobScheduler(key, defined({ ...repeat, ...ends }) as never, job as never)
  return (await target.getJobScheduler(key))?.next === next
}

function isSameSchedule(one: Scheduler, other: Scheduler): boolean {
  return (['every', 'pattern', 'tz'] as const).every((field) => String(one[field]) === String(other[field]))
}

function defined<T extends object>(fields: T): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T
}

/** Feedback holds of a group, which are copied with their end. */
const GROUP_HOLDS = ['limited', 'slowed', 'crowded']

/**
 * Copies temporary holds of the old queue and of its groups, set by hand or by feedback: both queues have the same
 * downstream. Repeatable: of two holds the stronger one wins, of two limits of running jobs the later one. An adaptive
 * rate has no end, and is not copied.
 * @param by who moves the queue
 */
export async function copyHolds(from: ShardedQueue, to: ShardedQueue, by: string): Promise<void> {
  const { each } = await from.meter()
  await copyPause(each, to, by)
  await copyPace(from, each, to, by)
  await Promise.all(from.each.map((shard, i) => copyGroupHolds(shard, (each[i] as MeterState).at, to)))
}

/** A pause applies to the whole queue, whichever shard has it. */
async function copyPause(each: readonly MeterState[], to: ShardedQueue, by: string): Promise<void> {
  const pauses = each.flatMap(({ at, pausedUntil, pauseReason }) =>
    pausedUntil ? [{ ms: pausedUntil.getTime() - at.getTime(), reason: pauseReason ?? '' }] : [],
  )
  const [longest] = pauses.toSorted((one, other) => other.ms - one.ms)
  if (!longest || longest.ms <= 0) return
  await Promise.all(to.each.map((shard) => shard.backend.store.pause({ kind: 'for', by, ...longest })))
}

/**
 * A slower rate and fewer running jobs apply to single shards. The new shards get equal parts of what the old ones
 * would have if each had the lowest; of running jobs, at least one each.
 */
async function copyPace(from: ShardedQueue, each: readonly MeterState[], to: ShardedQueue, by: string): Promise<void> {
  const holds = each.flatMap(({ at }, i) => {
    const feedback = from.each[i]?.backend.store.memory.stored?.feedback
    return feedback ? holdsOf(feedback, at.getTime()) : []
  })
  const parts = from.shards / to.shards
  const found = [slowest(holds, parts), fewest(holds, parts)].filter((one) => one !== undefined)
  if (found.length === 0) return
  const apply = (shard: ShapedQueue) =>
    applyFeedback(shard.backend.store, encodeFeedbackRequest({ found, by, sentUs: 0, adapt: undefined, oks: 0 }))
  await Promise.all(to.each.map((shard) => apply(shard as ShapedQueue)))
}

/** One hold of a shard, and its remaining time. */
interface Hold {
  readonly ttlMs: number
  readonly intervalUs?: number
  readonly limit?: number
}

function holdsOf({ slow, quota, concurrency }: StoredFeedback, nowMs: number): Hold[] {
  const rates = [slow, quota].flatMap((one) => one && { ttlMs: one.until - nowMs, intervalUs: one.interval })
  const running = concurrency && { ttlMs: concurrency.until - nowMs, limit: concurrency.limit }
  return [...rates, running].filter((one) => one !== undefined && one.ttlMs > 0) as Hold[]
}

const HELD_BEFORE = { scope: 'queue', source: 'user', reason: 'held the queue before it was moved' } as const

function slowest(holds: readonly Hold[], parts: number): Found | undefined {
  const rates = holds.filter(({ intervalUs }) => intervalUs !== undefined)
  if (rates.length === 0) return undefined
  const intervalUs = Math.max(...rates.map((one) => one.intervalUs as number)) / parts
  const rate = { limit: 1, period: intervalUs / 1000 }
  return { feedback: { kind: 'slow', ...HELD_BEFORE, rate, ttlMs: longestMs(rates) } }
}

function fewest(holds: readonly Hold[], parts: number): Found | undefined {
  const limits = holds.filter(({ limit }) => limit !== undefined)
  if (limits.length === 0) return undefined
  const limit = Math.max(1, Math.floor(Math.min(...limits.map((one) => one.limit as number)) * parts))
  return { feedback: { kind: 'concurrency', ...HELD_BEFORE, limit, ttlMs: longestMs(limits) } }
}

function longestMs(holds: readonly Hold[]): number {
  return Math.max(...holds.map(({ ttlMs }) => ttlMs))
}

/** @param at the time of the shard's Redis */
async function copyGroupHolds(shard: ShapedQueue, at: Date, to: ShardedQueue): Promise<void> {
  const settings = await (await inspectorOf(shard)).groupSettings(shard.name)
  for (const [id, entries] of Object.entries(settings)) {
    for (const field of GROUP_HOLDS) {
      const { value, by, reason, until } = entries[field] ?? {}
      const leftMs = until ? until.getTime() - at.getTime() : 0
      if (leftMs <= 0) continue
      const stored = field === 'slowed' ? encodeGroupOverride({ rate: value }).rate : value
      const target = await to.queueOfGroup(id)
      await target.backend.store.changeGroup(id, { [field]: stored }, { by, reason }, leftMs)
    }
  }
}
