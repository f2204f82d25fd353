export { createMetrics, type Metrics, type MetricsOptions } from './create-metrics.ts'
export { type MetricsServer, type MetricsServerOptions, startMetricsServer } from './metrics-server.ts'
