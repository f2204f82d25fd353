import { InvalidShapeError, UnsupportedOptionError } from '../errors.ts'
import { isByGroup } from '../limits/queue-limits.ts'
import { isScheduled } from '../limits/schedule.ts'
import { intervalUs, parseRate } from '../rate.ts'
import {
  encodeOverride,
  encodeShape,
  SETTABLE_FIELDS,
  type Shape,
  type ShapeField,
  type ShapeOverride,
} from '../shape/shape.ts'

/** Fields that the ledger divides by leases. */
const LEASED = ['rate', 'capacity', 'concurrency'] as const

/** How far ahead of its slot a job of a shard may be granted, ms. Same as HORIZON_US of lua/sharding/ledger.lua. */
export const MAX_HORIZON_MS = 500

/** The rate of a shard without a lease: one unit in 30 days. Same as IDLE of lua/sharding/ledger.lua. */
const IDLE_RATE = { limit: 1, period: 30 * 86_400_000 }
/** With slower rates, the idle rates of shards would count. */
const SLOWEST_US = 60_000_000

/**
 * The declared shape of the whole queue, with its burst.
 * @throws InvalidShapeError, InvalidRateError, UnsupportedOptionError
 */
export function wholeShape(shape: Shape, shards: number): Shape {
  encodeShape(shape)
  const whole = { ...shape, burst: shape.burst ?? shards }
  checkWhole(whole, shards)
  return whole
}

/** What each shard declares: the shape without leased fields. */
export function shapeOfShard(whole: Shape, shards: number): Shape {
  const { rate, capacity, concurrency, burst = shards } = whole
  return {
    ...whole,
    burst: burstOfShard(burst, shards),
    ...(rate === undefined ? {} : { rate: IDLE_RATE }),
    ...(capacity === undefined ? {} : { capacity: 1 }),
    ...(concurrency === undefined ? {} : { concurrency: 1 }),
  }
}

/** The sum of the shards' bursts never exceeds the queue's. */
function burstOfShard(burst: number, shards: number): number {
  return Math.max(1, Math.floor(burst / shards))
}

/**
 * A change at run time, split into leased fields and fields of each shard.
 * @throws InvalidShapeError, InvalidRateError, UnsupportedOptionError
 */
export function splitOverride(
  override: ShapeOverride,
  shards: number,
): { readonly whole: ShapeOverride; readonly each: ShapeOverride } {
  encodeOverride(override)
  // It reaches one shard after the other, so some would have a higher burst while others still had theirs.
  if (override.burst !== undefined) throw unsupported('burst', 'it cannot change at run time: declare it')
  checkWhole(override as Shape, shards)
  const each = Object.fromEntries(Object.entries(override).filter(([field]) => !isLeased(field)))
  return { whole: override, each }
}

function isLeased(field: string): boolean {
  return (LEASED as readonly string[]).includes(field)
}

/** The fields that apply in each shard separately, among the given ones or all that can change at run time. */
export function ownFields(fields: readonly ShapeField[] = SETTABLE_FIELDS): ShapeField[] {
  return fields.filter((field) => !isLeased(field))
}

function checkWhole(shape: Shape, shards: number): void {
  for (const field of ['burst', 'capacity', 'concurrency'] as const) {
    const value = shape[field]
    if (typeof value !== 'number' || value >= shards) continue
    throw new InvalidShapeError(
      `shape.${field} of a queue with ${shards} shards must be at least ${shards}, one for each; got ${value}`,
    )
  }
  const { rate } = shape
  if (isScheduled(rate)) {
    throw unsupported(
      'rate.schedule',
      'leases of shards are parts of one rate. Set the rate by hand, or do without shards',
    )
  }
  if (rate !== undefined && rate !== null && intervalUs(parseRate(rate)) * shards > SLOWEST_US) {
    throw new InvalidShapeError(
      `shape.rate of a queue with ${shards} shards must be at least ${shards} a minute, one for each; ` +
        `got ${JSON.stringify(rate)}`,
    )
  }
  if ((shape.horizonMs ?? 0) > MAX_HORIZON_MS) {
    throw new InvalidShapeError(`shape.horizonMs must be at most ${MAX_HORIZON_MS} in shards; got ${shape.horizonMs}`)
  }
  if (shape.rampUp?.afterIdleMs !== undefined) {
    throw unsupported('rampUp.afterIdleMs', 'a shard may be idle while others are not')
  }
  if (shape.reservedPlaces) throw unsupported('reservedPlaces', 'each shard would need places of its own for them')
  for (const limit of shape.limits ?? []) {
    if (limit.pool) throw unsupported(`limits ("${limit.name}")`, 'the members of a pool are kept in one shard')
    if (limit.shared && isByGroup(limit)) {
      throw unsupported(`limits ("${limit.name}")`, 'a shared limit lies in one slot, and shards in several')
    }
    if (!isByGroup(limit)) {
      throw unsupported(`limits ("${limit.name}")`, "a limit is kept in one shard: give it by: 'group'")
    }
  }
}

function unsupported(field: string, why: string): UnsupportedOptionError {
  return new UnsupportedOptionError(`shape.${field} is not supported in a queue with shards: ${why}`)
}
