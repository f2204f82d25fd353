/**
 * The bucket for read-only code: the arithmetic of `lua/meter/bucket.lua` and the opening of `lua/meter/meter.lua`, in the
 * same doubles, so that both compute the same times to the microsecond. Formulas: docs/algorithm.md.
 */
export interface Bucket {
  /** Origin of the times below, µs since 1970. */
  readonly originUs: number
  /** When the bucket would be empty. */
  readonly tatUs: number
  /** The last granted slot. */
  readonly lastUs: number
  /** µs per unit of cost. */
  readonly intervalUs: number
  readonly burst: number
  readonly nowUs: number
}

/** The parts of the shape that the bucket depends on. */
export interface BucketRule {
  readonly intervalUs: number
  readonly burst: number
  readonly mode: string
  /** Since when interval and burst are in force, µs; Infinity where unknown. */
  readonly changedAtUs: number
}

/** The fields of the hash `…:meta:meter` that are set, and by their names the parts of those that hold bytes. */
export type MeterFields = Readonly<Record<string, string>>

/** The doubles of the field `bucket`, in their order; two texts follow, each with a zero behind it (`lua/meter/meter.lua`). */
export const BUCKET_NUMBERS: readonly string[] = [
  ...['origin', 'tat', 'last', 'seen', 'interval', 'burst', 'horizon', 'horizonAt', 'meanCost', 'seq', 'steps'],
  'lossAt',
]
export const BUCKET_TEXTS = ['run', 'mode'] as const
/** Those of the field `pace` (`lua/meter/pace.lua`); `leftAt` is the last departure of a queue without a rate, µs. */
export const PACE_NUMBERS: readonly string[] = [
  ...['from', 'base', 'next', 'count', 'leftAt', 'ahead', 'late', 'runUs', 'offUs'],
]
const BYTES = 8

/** The two fields that hold bytes, in the order of {@link meterFields}. */
export const PACKED_FIELDS = ['bucket', 'pace'] as const

export function meterFields(fields: MeterFields, [bucket, pace]: readonly (Buffer | null | undefined)[]): MeterFields {
  const all: Record<string, string> = { ...fields }
  const read = (names: readonly string[], bytes: Buffer) => {
    for (const [i, name] of names.entries()) all[name] = String(bytes.readDoubleLE(i * BYTES))
  }
  if (pace) read(PACE_NUMBERS, pace)
  if (!bucket) return all
  read(BUCKET_NUMBERS, bucket)
  const texts = bucket.toString('latin1', BUCKET_NUMBERS.length * BYTES).split('\0')
  for (const [i, name] of BUCKET_TEXTS.entries()) all[name] = texts[i] as string
  return all
}

const GRID = 1024
const REBASE_US = 2 ** 42

function onGrid(us: number): number {
  return Math.ceil(us * GRID) / GRID
}

/** The bucket as the next call would find it, after a clock that went back or a changed rate or mode. */
export function openBucket(fields: MeterFields, rule: BucketRule, nowUs: number): Bucket {
  const number = (field: string, other: number) => (fields[field] === undefined ? other : Number(fields[field]))
  const seenUs = number('seen', nowUs)
  // If the clock went back, the origin moves back with it: distances in time stay the same.
  const originUs = number('origin', nowUs) - Math.max(0, seenUs - nowUs)
  const stored = {
    originUs,
    tatUs: number('tat', 0),
    lastUs: number('last', 0),
    intervalUs: number('interval', rule.intervalUs),
    burst: number('burst', rule.burst),
    nowUs: nowUs - originUs,
  }
  const bucket = reshaped(rebased(stored), rule)
  return (fields.mode ?? rule.mode) !== rule.mode && rule.mode === 'enforce' ? outOfShadow(bucket) : bucket
}

function rebased(bucket: Bucket): Bucket {
  const { nowUs, originUs, tatUs, lastUs } = bucket
  if (nowUs <= REBASE_US) return bucket
  return { ...bucket, originUs: originUs + nowUs, tatUs: tatUs - nowUs, lastUs: lastUs - nowUs, nowUs: 0 }
}

function reshaped(bucket: Bucket, { intervalUs, burst, changedAtUs }: BucketRule): Bucket {
  if (bucket.intervalUs === intervalUs && bucket.burst === burst) return bucket
  const from = Math.max(Math.min(bucket.nowUs, changedAtUs - bucket.originUs), bucket.lastUs)
  const debt = Math.max(0, bucket.tatUs - from) / bucket.intervalUs
  const owed = Math.max(0, burst - (bucket.burst - debt))
  return { ...bucket, tatUs: from + onGrid(owed * intervalUs), intervalUs, burst }
}

function outOfShadow(bucket: Bucket): Bucket {
  const fullUs = Math.max(bucket.nowUs, bucket.lastUs) + bucket.burst * bucket.intervalUs
  return { ...bucket, tatUs: Math.min(bucket.tatUs, fullUs) }
}

/** Level of the bucket, in units of cost; 0 is empty. */
export function levelOf({ tatUs, nowUs, intervalUs }: Bucket): number {
  return Math.max(0, tatUs - nowUs) / intervalUs
}

/** The earliest conforming time, µs since 1970, of a cost that is requested at `fromUs` or later. */
export function slotOf(bucket: Bucket, cost: number, fromUs: number): number {
  return bucket.originUs + Math.ceil(relativeSlot(bucket, cost, fromUs - bucket.originUs))
}

/** The bucket after a departure of that cost at its slot (µs since 1970). */
export function charged(bucket: Bucket, cost: number, slotUs: number): Bucket {
  const lastUs = slotUs - bucket.originUs
  return { ...bucket, lastUs, tatUs: Math.max(bucket.tatUs, lastUs) + onGrid(cost * bucket.intervalUs) }
}

/**
 * Slot of the n-th departure from now, µs since 1970, if the head costs `cost` and the others `mean` each.
 * @param n from 1
 * @param fromUs before which nothing leaves: now, or the end of a pause
 */
export function nthSlotOf(bucket: Bucket, n: number, cost: number, mean: number, fromUs: number): number {
  const slot = relativeSlot(bucket, cost, fromUs - bucket.originUs)
  if (n <= 1) return bucket.originUs + Math.ceil(slot)
  const { tatUs, burst, intervalUs, originUs } = bucket
  const after = Math.max(tatUs, slot) + onGrid(cost * intervalUs)
  const counted = Math.min(mean, burst)
  const nth = Math.max(slot, after + onGrid(((n - 2) * mean + counted - burst) * intervalUs))
  return originUs + Math.ceil(nth)
}

function relativeSlot({ lastUs, tatUs, intervalUs, burst }: Bucket, cost: number, from: number): number {
  return Math.max(from, lastUs, tatUs + onGrid((Math.min(cost, burst) - burst) * intervalUs))
}
