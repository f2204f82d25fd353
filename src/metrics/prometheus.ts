import { Counter, Gauge, Histogram, type OpenMetricsContentType, type Registry } from 'prom-client'
import type { Point } from './points.ts'

/** prom-client's, for the text format of Prometheus or of OpenMetrics. */
export type MetricsRegistry = Registry | Registry<OpenMetricsContentType>

/** A metric as prom-client exports it; its points are read at each scrape. */
export interface ToldMetric {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly labelNames: readonly string[]
  readonly points: () => Promise<readonly Point[]>
}

/** Adds a metric to a registry. prom-client keeps counts itself; these are counted in Redis, and only exported. */
export function register({ name, type, help, labelNames, points }: ToldMetric, registry: MetricsRegistry): void {
  const made = new CLASSES[type]({ name, help, labelNames, registers: [registry] })
  const get = async () => {
    const values = (await points()).map(({ suffix, ...point }) =>
      suffix === undefined ? point : { metricName: name + suffix, ...point },
    )
    // An OpenMetrics registry renames counters.
    return { name: (made as unknown as ToldMetric).name, help, type, aggregator: 'sum', values }
  }
  // A registry calls the second on a histogram when it writes text.
  Object.assign(made, { get, getForPromString: get })
}

const CLASSES = { counter: Counter, gauge: Gauge, histogram: Histogram }
