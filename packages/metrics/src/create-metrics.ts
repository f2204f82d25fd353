import { Counter, Gauge, Histogram, type OpenMetricsContentType, Registry } from 'prom-client'
import { Inspector, type InspectorOptions } from 'sluice/inspect'
import { checkCallOptions, InvalidInputError } from 'sluice/internal'
import { type Family, FLEET_FAMILIES, QUEUE_FAMILIES } from './families.ts'
import { FleetReader } from './fleet-reader.ts'
import type { FleetReading, QueueReading } from './fleet-reading.ts'
import type { Point } from './points.ts'
import { OTHER, QueueLabels } from './queue-labels.ts'

export interface MetricsOptions {
  /** As in BullMQ: an ioredis client or its options. A read-only user or a replica is enough. */
  connection: InspectorOptions['connection']
  /** BullMQ's key prefix. Default `bull`. */
  prefix?: string
  /** Names of the queues. Default: all queues that have a shape. */
  queues?: readonly string[]
  /** The registry for the metrics. Default: a new one. */
  register?: MetricsRegistry
  /** How many queues have their own label; the rest share `other`. Default 100. */
  maxQueues?: number
  /**
   * In each queue, this many of the longest-waiting groups and this many of the largest have a label. A group's id may
   * name a customer. Default 0.
   */
  groups?: number
  /**
   * In each queue, this many values (of limits with `by`) with the most waiting lanes and this many with the most
   * running jobs have a label. Default 0.
   */
  keys?: number
  /** How long a scrape waits for Redis, ms. Default 5000. */
  timeoutMs?: number
}

const OPTIONS = ['connection', 'prefix', 'queues', 'register', 'maxQueues', 'groups', 'keys', 'timeoutMs']

/**
 * The metrics of queues, read from Redis at each scrape. They cover the whole fleet, so one process should export them.
 */
export interface Metrics {
  readonly register: MetricsRegistry
  /** Content type of {@link text}. */
  readonly contentType: string
  /** The response to a scrape. Never rejects because of Redis. */
  text(): Promise<string>
  /** Removes the metrics from the registry, and closes the connection if it was opened for them. */
  close(): Promise<void>
}

/** One metric of {@link createMetrics}. */
export interface MetricDescription {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly unit: string
  readonly help: string
  /** The names of its labels, and the possible values of each; those of `queue`, `group`, `limit` and `key` are names and `other`. */
  readonly labels: Readonly<Record<string, readonly string[]>>
}

/** All metrics. */
export const METRICS: readonly MetricDescription[] = [
  ...FLEET_FAMILIES.map(describe),
  ...QUEUE_FAMILIES.map(describe).map((one) => ({ ...one, labels: { queue: [], ...one.labels } })),
]

/**
 * Adds the metrics of queues to a registry of prom-client.
 *
 * ```ts
 * const metrics = createMetrics({ connection })
 * app.get('/metrics', async (_request, reply) => reply.type(metrics.contentType).send(await metrics.text()))
 * ```
 * @throws InvalidInputError for an invalid option, or where the registry already has a metric of one of these names
 */
export function createMetrics(options: MetricsOptions): Metrics {
  checkCallOptions('createMetrics', options, OPTIONS)
  const {
    connection,
    prefix,
    queues,
    register: registry = new Registry(),
    maxQueues = 100,
    groups = 0,
    keys = 0,
    timeoutMs = 5000,
  } = options
  checkCount('maxQueues', maxQueues)
  if (groups !== 0) checkCount('groups', groups)
  if (keys !== 0) checkCount('keys', keys)
  checkCount('timeoutMs', timeoutMs)
  const taken = METRICS.find(({ name }) => registry.getSingleMetric(name))
  if (taken) throw new InvalidInputError(`register must have no metric named ${taken.name}; it has one`)
  const inspector = new Inspector({ connection, ...(prefix === undefined ? {} : { prefix }) })
  const labels = new QueueLabels(maxQueues)
  const reader = new FleetReader({ inspector, queues, labels, groups, keys, families: QUEUE_FAMILIES, timeoutMs })
  for (const metric of exportedMetrics(() => reader.read())) register(metric, registry)
  return {
    register: registry,
    contentType: registry.contentType,
    text: () => registry.metrics(),
    async close() {
      for (const { name } of METRICS) registry.removeSingleMetric(name)
      await inspector.close()
    },
  }
}

function exportedMetrics(read: () => Promise<FleetReading>): ExportedMetric[] {
  const exported = <From>({ name, type, help, labels }: Family<From>) => ({
    name,
    type,
    help,
    labelNames: Object.keys(labels),
  })
  const fleet = FLEET_FAMILIES.map((family) => ({
    ...exported(family),
    points: async () => family.read(await read()),
  }))
  const queues = QUEUE_FAMILIES.map((family) => ({
    ...exported(family),
    labelNames: ['queue', ...Object.keys(family.labels)],
    points: async () => queuePoints(family, await read()),
  }))
  return [...fleet, ...queues]
}

function queuePoints(family: Family<QueueReading>, { queues, others }: FleetReading): Point[] {
  const labelled = (queue: string, points: readonly Point[]) =>
    points.map((point) => ({ ...point, labels: { queue, ...point.labels } }))
  const own = queues.flatMap((reading) => labelled(reading.status.name, family.read(reading)))
  return [...own, ...labelled(OTHER, others.get(family.name) ?? [])]
}

function describe<From>({ name, type, unit, help, labels }: Family<From>): MetricDescription {
  return { name, type, unit, help, labels }
}

function checkCount(name: string, value: number): void {
  if (!(Number.isInteger(value) && value > 0))
    throw new InvalidInputError(`${name} must be a whole number > 0; got ${value}`)
}

/** prom-client's, for the text format of Prometheus or of OpenMetrics. */
type MetricsRegistry = Registry | Registry<OpenMetricsContentType>

/** A metric as prom-client exports it; its points are read at each scrape. */
interface ExportedMetric {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly labelNames: readonly string[]
  readonly points: () => Promise<readonly Point[]>
}

/** Adds a metric to a registry. prom-client keeps counts itself; these are counted in Redis, and only exported. */
function register({ name, type, help, labelNames, points }: ExportedMetric, registry: MetricsRegistry): void {
  const made = new CLASSES[type]({ name, help, labelNames, registers: [registry] })
  const get = async () => {
    const values = (await points()).map(({ suffix, ...point }) =>
      suffix === undefined ? point : { metricName: name + suffix, ...point },
    )
    // An OpenMetrics registry renames counters.
    return { name: (made as unknown as ExportedMetric).name, help, type, aggregator: 'sum', values }
  }
  // A registry calls the second on a histogram when it writes text.
  Object.assign(made, { get, getForPromString: get })
}

const CLASSES = { counter: Counter, gauge: Gauge, histogram: Histogram }
