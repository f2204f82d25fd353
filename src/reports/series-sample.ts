import { HOLD_CAUSES } from '../departure/departure.ts'

/**
 * The counts in a sample of `lua/verbs/report.lua`, in order, after its time; the clocks of the causes and the pause follow.
 */
const COUNTS = [
  ...([
    'accepted',
    'departed',
    'refused',
    'dropped',
    'depth',
    'waiting',
    'active',
    'headAgeMs',
    'ratePerSecond',
  ] as const),
  ...(['starts', 'latenessSumUs', 'latenessMaxUs'] as const),
  ...(['completed', 'failed', 'failedAttempts', 'bypassed'] as const),
] as const
const HELD_FROM = 1 + COUNTS.length
const PAUSED_AT = HELD_FROM + HOLD_CAUSES.length

/** A stored sample. */
export interface SeriesSample {
  readonly atMs: number
  readonly counts: Readonly<Record<(typeof COUNTS)[number], number>>
  /** In the order of the causes. */
  readonly heldUs: readonly number[]
  readonly paused: boolean
}

/** Reads a JSON list; undefined if it is not a sample. */
export function readSample(json: string | null): SeriesSample | undefined {
  const values = listOf(json)
  if (values.length < PAUSED_AT) return undefined
  const counts = Object.fromEntries(COUNTS.map((name, i) => [name, values[1 + i]]))
  return {
    atMs: values[0] as number,
    counts: counts as SeriesSample['counts'],
    heldUs: values.slice(HELD_FROM, PAUSED_AT),
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
