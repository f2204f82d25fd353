import { Counter, Gauge, Histogram, type OpenMetricsContentType, type Registry } from 'prom-client'
import type { Point } from './points.ts'

/** prom-client's, for the text of Prometheus or of OpenMetrics. */
export type MetricsRegistry = Registry | Registry<OpenMetricsContentType>

/** A metric as prom-client shows it; its points are asked for at each scrape. */
export interface ToldMetric {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly labelNames: readonly string[]
  readonly points: () => Promise<readonly Point[]>
}

/** Puts a metric into a registry. prom-client counts by itself; these are counted in Redis, and only told. */
export function register({ name, type, help, labelNames, points }: ToldMetric, registry: MetricsRegistry): void {
  const made = new CLASSES[type]({ name, help, labelNames, registers: [registry] })
  const get = async () => {
    const values = (await points()).map(({ suffix, ...point }) =>
      suffix === undefined ? point : { metricName: name + suffix, ...point },
    )
    // A registry of OpenMetrics renames counters.
    return { name: (made as unknown as ToldMetric).name, help, type, aggregator: 'sum', values }
  }
  // The second is what a registry asks a histogram for where it writes text.
  Object.assign(made, { get, getForPromString: get })
}

const CLASSES = { counter: Counter, gauge: Gauge, histogram: Histogram }
