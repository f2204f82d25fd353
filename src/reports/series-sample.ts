import { HOLD_CAUSES, type HoldCause, mapCauses } from '../departure/departure.ts'

/** For how long each cause has held the head of the queue so far, ms in total. */
export type HeldMs = Readonly<Record<HoldCause, number>>

/** One point of the series that workers write: totals at a time. */
export interface Sample {
  readonly at: Date
  readonly accepted: number
  readonly departed: number
  readonly refused: number
  readonly dropped: number
  readonly depth: number
  readonly waiting: number
  readonly active: number
  readonly headAgeMs: number | undefined
  /** The current rate, units of cost per second; undefined if jobs are not paced. */
  readonly ratePerSecond: number | undefined
  readonly starts: number
  readonly latenessSumMs: number
  /** Since the previous sample. */
  readonly latenessMaxMs: number
  readonly completed: number
  /** Jobs that failed permanently. */
  readonly failed: number
  /** Failed attempts, whether the job was retried or not. */
  readonly failedAttempts: number
  /** Starts past the meter. */
  readonly bypassed: number
  readonly heldMs: HeldMs
  /** Whether a pause held at that moment, BullMQ's or the meter's. */
  readonly paused: boolean
}

/** The counts in a stored sample, in order, after its time; the clocks of the causes and the pause follow. */
const COUNTS = [
  ...(['accepted', 'departed', 'refused', 'dropped', 'depth', 'waiting', 'active', 'headAgeMs'] as const),
  ...(['ratePerSecond', 'starts', 'latenessSumMs', 'latenessMaxMs'] as const),
  ...(['completed', 'failed', 'failedAttempts', 'bypassed'] as const),
]
const HELD_FROM = 1 + COUNTS.length
const PAUSED_AT = HELD_FROM + HOLD_CAUSES.length

/** Reads a sample of `lua/verbs/report.lua`, a JSON list; undefined if it is none. */
export function readSample(json: string | null): Sample | undefined {
  const values = listOf(json)
  if (values.length < PAUSED_AT) return undefined
  const named = Object.fromEntries(COUNTS.map((name, i) => [name, values[1 + i]]))
  const counts = named as Record<(typeof COUNTS)[number], number>
  return {
    ...counts,
    at: new Date(values[0] as number),
    headAgeMs: counts.headAgeMs < 0 ? undefined : counts.headAgeMs,
    ratePerSecond: counts.ratePerSecond < 0 ? undefined : counts.ratePerSecond,
    // Stored in µs, like the clocks.
    latenessSumMs: counts.latenessSumMs / 1000,
    latenessMaxMs: counts.latenessMaxMs / 1000,
    heldMs: mapCauses((_, i) => (values[HELD_FROM + i] as number) / 1000),
    paused: values[PAUSED_AT] === 1,
  }
}

function listOf(json: string | null): number[] {
  try {
    const values: unknown = JSON.parse(json ?? '[]')
    return Array.isArray(values) ? values.map(Number) : []
  } catch {
    return []
  }
}
