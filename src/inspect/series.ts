import { seriesKey } from '../redis/keys.ts'
import { readSample } from '../reports/series-sample.ts'
import type { Batch, Deferred } from './batch.ts'
import { mapCauses } from './held.ts'
import { HOLD_CAUSES, type Sample } from './queue-status.ts'

/** Seconds between two samples of the lists that workers write, finest first. As in `lua/reports/series.lua`. */
export const RESOLUTIONS = [2, 15, 120] as const
export type Resolution = (typeof RESOLUTIONS)[number]

export interface SeriesOptions {
  /** Only samples from this time on. */
  readonly since?: Date
  /** Seconds between two samples. Default: the finest that reaches back to `since`; without it, the finest. */
  readonly resolution?: Resolution
}

/** How far back each list reaches. */
export class ReachReading {
  readonly #oldest: readonly (readonly [Resolution, Deferred<string | null>])[]

  constructor(base: string, batch: Batch) {
    this.#oldest = RESOLUTIONS.map((one) => [one, batch.add('lindex', seriesKey(base, one), -1)])
  }

  /** The finest list that reaches back to `since`; if none does, the finest of those that reach furthest. */
  finest(since: Date): Resolution {
    const oldest = this.#oldest.map(([one, answer]) => [one, sampleOf(answer())?.at.getTime() ?? Infinity] as const)
    const reach = Math.max(since.getTime(), Math.min(...oldest.map(([, at]) => at)))
    return oldest.find(([, at]) => at <= reach)?.[0] ?? RESOLUTIONS[0]
  }
}

/** A list of samples, oldest first. */
export class SeriesReading {
  readonly #list: Deferred<string[]>

  constructor(base: string, resolution: Resolution, batch: Batch) {
    this.#list = batch.add('lrange', seriesKey(base, resolution), 0, -1)
  }

  samples(since?: Date): Sample[] {
    const samples = this.#list().flatMap((json) => sampleOf(json) ?? [])
    return samples.filter(({ at }) => since === undefined || at >= since).reverse()
  }
}

/** In units for display; undefined for a text that is not a sample. */
function sampleOf(json: string | null): Sample | undefined {
  const stored = readSample(json)
  if (!stored) return undefined
  const { latenessSumUs, latenessMaxUs, headAgeMs, ratePerSecond, ...counts } = stored.counts
  return {
    ...counts,
    at: new Date(stored.atMs),
    headAgeMs: headAgeMs < 0 ? undefined : headAgeMs,
    ratePerSecond: ratePerSecond < 0 ? undefined : ratePerSecond,
    latenessSumMs: latenessSumUs / 1000,
    latenessMaxMs: latenessMaxUs / 1000,
    heldMs: mapCauses((cause) => (stored.heldUs[HOLD_CAUSES.indexOf(cause)] ?? 0) / 1000),
    paused: stored.paused,
  }
}
