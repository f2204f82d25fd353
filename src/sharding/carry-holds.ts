import { applyFeedback, encodeFeedbackRequest } from '../feedback/request.ts'
import type { Found } from '../feedback/source.ts'
import type { MeterState } from '../queue/meter-state.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import { encodeGroupOverride } from '../shape/groups.ts'
import type { StoredFeedback } from '../shape/stored.ts'
import { inspectorOf } from './parts.ts'
import type { ShardedQueue } from './queue.ts'

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
