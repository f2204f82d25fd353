import { seriesKey } from '../redis/keys.ts'
import { readSample, type Sample } from '../reports/series-sample.ts'
import type { Batch, Deferred } from './batch.ts'

/** Seconds between two samples of the lists that workers write, finest first. As in `lua/reports/series.lua`. */
export const RESOLUTIONS = [2, 15, 120] as const
export type Resolution = (typeof RESOLUTIONS)[number]

export interface SeriesOptions {
  /** Only samples from this time on. */
  readonly since?: Date
  /** Seconds between two samples. Default: the finest that reaches back to `since`; without it, the finest. */
  readonly resolution?: Resolution
}

/** Asks for the finest list that reaches back to `since`; if none does, the finest of those that reach furthest. */
export function askForFinest(base: string, since: Date, batch: Batch): Deferred<Resolution> {
  const answers = RESOLUTIONS.map((one) => batch.add<string | null>('lindex', seriesKey(base, one), -1))
  return () => {
    const oldest = answers.map((answer) => readSample(answer())?.at.getTime() ?? Number.POSITIVE_INFINITY)
    const reach = Math.max(since.getTime(), Math.min(...oldest))
    return RESOLUTIONS[oldest.findIndex((at) => at <= reach)] ?? RESOLUTIONS[0]
  }
}

/** Asks for a list of samples, oldest first. */
export function askForSeries(base: string, resolution: Resolution, batch: Batch, since?: Date): Deferred<Sample[]> {
  const list = batch.add<string[]>('lrange', seriesKey(base, resolution), 0, -1)
  return () => {
    const samples = list().flatMap((json) => readSample(json) ?? [])
    return samples.filter(({ at }) => since === undefined || at >= since).reverse()
  }
}
