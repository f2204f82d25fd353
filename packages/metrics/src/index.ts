// metrics/: what inspect reads, as metrics, and a server for them. It must not know the dashboard or the command
// line.

export { createMetrics, type Metrics, type MetricsOptions } from './create-metrics.ts'
export { type MetricsServer, type MetricsServerOptions, startMetricsServer } from './metrics-server.ts'
