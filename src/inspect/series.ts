import { seriesKey } from '../keys.ts'
import type { Answer, Batch } from './batch.ts'
import { mapCauses } from './held.ts'
import { HOLD_CAUSES, type Sample } from './queue-status.ts'

/** Seconds between two samples of the lists that workers write, the finest first. As in `lua/lib/series.lua`. */
export const RESOLUTIONS = [2, 15, 120] as const
export type Resolution = (typeof RESOLUTIONS)[number]

export interface SeriesOptions {
  /** Only samples from then on. */
  readonly since?: Date
  /** Seconds between two samples. Default: the finest that reaches back to `since`; without it, the finest. */
  readonly resolution?: Resolution
}

/** How far back each list reaches. */
export class ReachReading {
  readonly #oldest: readonly (readonly [Resolution, Answer<string | null>])[]

  constructor(base: string, batch: Batch) {
    this.#oldest = RESOLUTIONS.map((one) => [one, batch.add('lindex', seriesKey(base, one), -1)])
  }

  /** The finest that reaches back to then; where none does, the finest of those that reach furthest. */
  finest(since: Date): Resolution {
    const oldest = this.#oldest.map(([one, answer]) => [one, sampleOf(answer())?.at.getTime() ?? Infinity] as const)
    const reach = Math.max(since.getTime(), Math.min(...oldest.map(([, at]) => at)))
    return oldest.find(([, at]) => at <= reach)?.[0] ?? RESOLUTIONS[0]
  }
}

/** A list of samples, oldest first. */
export class SeriesReading {
  readonly #list: Answer<string[]>

  constructor(base: string, resolution: Resolution, batch: Batch) {
    this.#list = batch.add('lrange', seriesKey(base, resolution), 0, -1)
  }

  samples(since?: Date): Sample[] {
    const samples = this.#list().flatMap((json) => sampleOf(json) ?? [])
    return samples.filter(({ at }) => since === undefined || at >= since).reverse()
  }
}

/** The places of a sample, as `lua/report.lua` writes them, but for the time before and the clocks and the pause behind. */
const PLACES = [
  ...[
    'accepted',
    'departed',
    'refused',
    'dropped',
    'depth',
    'waiting',
    'active',
    'headAgeMs',
    'ratePerSecond',
    'starts',
  ],
  ...['latenessSumUs', 'latenessMaxUs'],
]

/** A JSON list; what is no sample is left out. */
function sampleOf(json: string | null): Sample | undefined {
  const values = listOf(json)
  if (values.length < PLACES.length + 1 + HOLD_CAUSES.length) return undefined
  const [at = 0, ...rest] = values
  const named = Object.fromEntries(PLACES.map((place, i) => [place, rest[i] as number]))
  const { latenessSumUs = 0, latenessMaxUs = 0, headAgeMs = -1, ratePerSecond = -1, ...counts } = named
  const held = rest.slice(PLACES.length)
  return {
    ...(counts as Pick<
      Sample,
      'accepted' | 'departed' | 'refused' | 'dropped' | 'depth' | 'waiting' | 'active' | 'starts'
    >),
    at: new Date(at),
    headAgeMs: headAgeMs < 0 ? undefined : headAgeMs,
    ratePerSecond: ratePerSecond < 0 ? undefined : ratePerSecond,
    latenessSumMs: latenessSumUs / 1000,
    latenessMaxMs: latenessMaxUs / 1000,
    heldMs: mapCauses((cause) => (held[HOLD_CAUSES.indexOf(cause)] ?? 0) / 1000),
    paused: held[HOLD_CAUSES.length] === 1,
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
