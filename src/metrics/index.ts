export { createMetrics, METRICS, type MetricDescription, type Metrics, type MetricsOptions } from './create-metrics.ts'
export { type MetricsServer, type MetricsServerOptions, startMetricsServer } from './metrics-server.ts'
