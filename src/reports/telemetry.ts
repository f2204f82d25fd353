import { AsyncLocalStorage } from 'node:async_hooks'
import { type Job, SpanKind, type Telemetry } from 'bullmq'
import type { Departure } from '../departure/departure.ts'
import { CannotStartInTimeError, QueueFullError } from '../errors.ts'

type Tracer = Telemetry['tracer']
type Span = ReturnType<Tracer['startSpan']>
type Attributes = Parameters<Span['setAttributes']>[0]

/** What the spans need of a worker. */
interface DepartingWorker {
  on(event: 'departed', listener: (job: Job, departure: Departure) => void): unknown
  readonly name: string
}

/** The spans of BullMQ's CONSUMER operations, available to code that runs inside them. */
const running = new AsyncLocalStorage<Span>()

/** The options of a queue, worker or flow producer, with {@link shapedTelemetry} wrapped around their telemetry. */
export function withShapedTelemetry<Options extends { telemetry?: Telemetry }>(options: Options): Options {
  return options.telemetry ? { ...options, telemetry: shapedTelemetry(options.telemetry) } : options
}

/**
 * BullMQ's telemetry with the effects of the shape in its spans: refusals in spans that add jobs, departures in spans
 * that process jobs (see {@link traceDepartures}). docs/metrics.md lists the attributes.
 */
function shapedTelemetry<Context>(telemetry: Telemetry<Context>): Telemetry<Context> {
  const { tracer, contextManager, meter } = telemetry
  const spans = new WeakMap<object, Span>()
  const root = contextManager.root?.bind(contextManager)
  return {
    tracer: {
      startSpan: (name, options, context) => {
        const span = tracer.startSpan(name, options, context)
        return options?.kind === SpanKind.CONSUMER ? enterable(span, spans) : reportingRefusals(span)
      },
    },
    contextManager: {
      with: (context, fn) => {
        const span = typeof context === 'object' && context !== null ? spans.get(context) : undefined
        const run = () => contextManager.with(context, fn)
        return span ? running.run(span, run) : run()
      },
      active: () => contextManager.active(),
      getMetadata: (context) => contextManager.getMetadata(context),
      fromMetadata: (active, metadata) => contextManager.fromMetadata(active, metadata),
      ...(root ? { root } : {}),
    },
    ...(meter ? { meter } : {}),
  }
}

/** Adds departures to the spans of a worker with {@link shapedTelemetry}. */
export function traceDepartures(worker: DepartingWorker): void {
  worker.on('departed', (job, departure) => running.getStore()?.setAttributes(departureAttributes(job, departure)))
}

/** A span that {@link traceDepartures} can find from the code inside it. */
function enterable(span: Span, spans: WeakMap<object, Span>): Span {
  return spanLike(span, {
    setSpanOnContext: (context) => {
      const own: unknown = span.setSpanOnContext(context)
      if (typeof own === 'object' && own !== null) spans.set(own, span)
      return own
    },
  })
}

function reportingRefusals(span: Span): Span {
  return spanLike(span, {
    recordException: (exception, time) => {
      const error: unknown = exception
      if (error instanceof QueueFullError || error instanceof CannotStartInTimeError) {
        span.setAttributes(refusalAttributes(error))
      }
      span.recordException(exception, time)
    },
  })
}

function spanLike(span: Span, own: Partial<Span>): Span {
  return {
    setSpanOnContext: (context) => span.setSpanOnContext(context),
    setAttribute: (key, value) => span.setAttribute(key, value),
    setAttributes: (attributes) => span.setAttributes(attributes),
    addEvent: (name, attributes) => span.addEvent(name, attributes),
    recordException: (exception, time) => span.recordException(exception, time),
    end: () => span.end(),
    ...own,
  }
}

/** The names in `messaging` and `error` are those of OpenTelemetry's semantic conventions. */
function departureAttributes(job: Job, { departureTimeUs, latenessUs, heldBy }: Departure): Attributes {
  const { cost = 1, delay = 0 } = job.opts as { cost?: number; delay?: number }
  const readyMs = job.timestamp + delay
  return {
    'messaging.system': 'bullmq',
    'messaging.operation.type': 'process',
    'messaging.destination.name': job.queueName,
    ...(job.id === undefined ? {} : { 'messaging.message.id': job.id }),
    'sluice.departure_time': isoOf(departureTimeUs),
    'sluice.lateness_ms': latenessUs / 1000,
    'sluice.cost': cost,
    // The time at which a later attempt became ready is not recorded.
    ...(job.attemptsStarted <= 1 ? { 'sluice.wait_ms': Math.max(0, departureTimeUs / 1000 - readyMs) } : {}),
    ...(heldBy === undefined ? {} : { 'sluice.held_by': heldBy }),
  }
}

function refusalAttributes(refusal: QueueFullError | CannotStartInTimeError): Attributes {
  const { name, queueName, retryAfterMs, depth, capacity, paused } = refusal
  return {
    'messaging.system': 'bullmq',
    'messaging.operation.type': 'send',
    'messaging.destination.name': queueName,
    'error.type': name,
    'sluice.refused': true,
    'sluice.retry_after_ms': retryAfterMs,
    'sluice.depth': depth,
    ...(capacity === undefined ? {} : { 'sluice.capacity': capacity }),
    'sluice.paused': paused,
  }
}

/** ISO 8601 with the µs that a Date lacks. */
function isoOf(us: number): string {
  return `${new Date(us / 1000).toISOString().slice(0, -1)}${String(us % 1000).padStart(3, '0')}Z`
}
