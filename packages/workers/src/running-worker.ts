import { type BatchOptions, type ShapedJob, ShapedQueue, ShapedWorker } from 'sluice'
import { intervalUs, parseRate } from 'sluice/internal'
import { type Closers, createErrorLog, inspectionConnection, type Logger, workerConnection } from 'sluice-programs'
import type { CommonSettings } from './common-settings.ts'
import { type DepartureLog, openDepartureLog } from './departure-log.ts'
import { startHealthServer } from './health.ts'
import type { QueueFacts } from './liveness.ts'
import type { Destination } from './worker-program.ts'

const FACTS_TIMEOUT_MS = 2000

/** When a job last started or finished, ms on the process's monotonic clock. */
interface Progress {
  lastMs: number
}

/**
 * Builds the shaped worker of a program, with its log, its departure log and its health port. Everything it opens is
 * registered with `closers`.
 * @returns the worker, ready and with its shape stored, but not running yet.
 */
export async function buildWorker(
  settings: CommonSettings,
  destination: Destination,
  log: Logger,
  closers: Closers,
): Promise<ShapedWorker> {
  const { rate, burst, capacity, groups, concurrency, prefix } = settings
  // Opened before the worker, and so closed after the worker's last departure.
  const departures = settings.departureLog === '' ? undefined : openDepartureLog(settings.departureLog, prefix)
  if (departures) closers.push(() => departures.close())
  const { process, batch } = processing(destination)
  const worker = new ShapedWorker(settings.queueName, process, {
    connection: workerConnection(settings.redisUrl),
    prefix,
    concurrency,
    ...(batch && { batch }),
    shape: { rate, burst, capacity, ...(groups ? { groups } : {}) },
    feedback: destination.feedback,
    adapt: settings.adapt,
    feedbackScope: settings.feedbackScope,
    giveUpAfterMs: settings.giveUpAfterMs,
    autorun: false,
    removeOnComplete: { count: 1000 },
    removeOnFail: { count: 5000 },
  })
  closers.push(() => worker.close())
  const progress: Progress = { lastMs: performance.now() }
  logEvents(worker, log)
  trackProgress(worker, progress)
  if (departures) recordDepartures(worker, departures, log)
  await worker.waitUntilReady()
  if (settings.healthPort !== 0) await serveHealth(worker, settings, log, progress, closers)
  return worker
}

/** The options of a worker that say how it runs the jobs of a destination. */
export function processing(destination: Pick<Destination, 'process' | 'batches'>): {
  process: (job: ShapedJob) => Promise<unknown>
  batch?: BatchOptions
} {
  if (!destination.batches) return { process: (job) => destination.process(job) }
  const { process: processBatch, ...batch } = destination.batches
  const process = async (job: ShapedJob) => {
    const jobs = job.getBatch()
    const ends = await processBatch(jobs)
    for (const [i, end] of ends.entries()) {
      if (end.status === 'fulfilled') jobs[i]?.setAsCompleted(end.value)
      else jobs[i]?.setAsFailed(end.reason)
    }
  }
  return { process, batch }
}

function logEvents(worker: ShapedWorker, log: Logger): void {
  worker.on('error', createErrorLog(log))
  worker.on('completed', (job) => log.debug({ jobId: job.id, attempt: job.attemptsMade }, 'completed'))
  worker.on('failed', (job, error) => {
    log.warn({ jobId: job?.id, attempt: job?.attemptsMade, reason: error.message }, 'failed')
  })
  worker.on('stalled', (jobId) => log.warn({ jobId }, 'stalled'))
  worker.on('late', (job, { latenessUs }) => log.debug({ jobId: job.id, latenessUs }, 'late'))
  worker.on('feedback', (change) => log.warn({ change }, 'feedback'))
  worker.on('verdict', (job, verdict) => log.warn({ jobId: job.id, verdict }, 'verdict'))
  worker.on('shape', (shape) => log.info({ shape }, 'shape'))
  worker.on('stateLoss', (loss) => log.warn({ loss }, 'stateLoss'))
  worker.on('clockStep', (step) => log.warn({ step }, 'clockStep'))
  worker.on('foreignWorker', (foreign) => log.warn({ foreign }, 'foreignWorker'))
}

function trackProgress(worker: ShapedWorker, progress: Progress): void {
  const mark = () => {
    progress.lastMs = performance.now()
  }
  worker.on('active', mark)
  worker.on('completed', mark)
  worker.on('failed', mark)
}

function recordDepartures(worker: ShapedWorker, departures: DepartureLog, log: Logger): void {
  worker.on('departed', (job, departure) => {
    try {
      departures.record(job, departure)
    } catch (error) {
      log.error({ err: error }, 'departure not recorded')
    }
  })
}

async function serveHealth(
  worker: ShapedWorker,
  settings: CommonSettings,
  log: Logger,
  progress: Progress,
  closers: Closers,
): Promise<void> {
  const queue = new ShapedQueue(settings.queueName, {
    connection: inspectionConnection(settings.redisUrl, FACTS_TIMEOUT_MS),
    prefix: settings.prefix,
  })
  queue.on('error', createErrorLog(log))
  closers.push(() => queue.close())
  const server = await startHealthServer({
    host: settings.healthHost,
    port: settings.healthPort,
    stallTimeoutMs: settings.stallTimeoutMs,
    queueFacts: () => readQueueFacts(queue),
    lastProgressMs: () => progress.lastMs,
    accepting: () => worker.isRunning() && !worker.isPaused(),
  })
  closers.push(() => server.close())
  log.info({ port: server.port }, 'health')
}

/** Reads the state of a queue for the liveness of its workers. Rejects when Redis does not answer. */
export async function readQueueFacts(queue: Pick<ShapedQueue, 'meter'>): Promise<QueueFacts> {
  const { waiting, active, paused, pausedUntil, rate, shape } = await queue.meter()
  return {
    waiting,
    paused: paused || pausedUntil !== undefined,
    full: active >= (shape?.concurrency ?? Number.POSITIVE_INFINITY),
    intervalMs: rate === undefined ? 0 : intervalUs(parseRate(rate)) / 1000,
    burst: shape?.burst ?? 1,
  }
}
