import { Worker } from 'bullmq'
import {
  Closers,
  createErrorLog,
  createLogger,
  createScrubber,
  listenToProcess,
  readSettings,
  secretTexts,
  workerConnection,
} from 'sluice-programs'
import { type CommonSettings, openDepartureLog, type WorkerProgram } from 'sluice-workers'
import { parseRate } from '../../src/index.ts'

/**
 * Runs a program with BullMQ's own Worker and limiter instead of the meter, for `npm start -- --compare`: same
 * settings, same destination, same log of starts. Resolves after SIGTERM.
 */
export async function runLimited<S extends CommonSettings>(program: WorkerProgram<S>): Promise<void> {
  const settings = readSettings(program.settings, process.env) as unknown as S
  const scrub = createScrubber(secretTexts(program.settings, process.env))
  const log = createLogger({ name: `limited-${program.name}`, level: settings.logLevel, scrub })
  const events = listenToProcess(log)
  const closers = new Closers()
  closers.push(() => events.dispose())
  const destination = await program.open(settings, log)
  closers.push(() => destination.close())
  const departures = await openDepartureLog(settings.departureLog, settings.prefix)
  closers.push(() => departures.close())
  const { limit, periodMs } = parseRate(settings.rate)
  const worker = new Worker(
    settings.queueName,
    (job) => {
      // There is no slot, so only the start is recorded.
      const startedAtUs = Math.round((performance.timeOrigin + performance.now()) * 1000)
      departures.record(job, { departureTimeUs: startedAtUs, departedAtUs: startedAtUs, latenessUs: 0 })
      return destination.process(job)
    },
    {
      connection: workerConnection(settings.redisUrl),
      prefix: settings.prefix,
      concurrency: settings.concurrency,
      limiter: { max: limit, duration: periodMs },
    },
  )
  worker.on('error', createErrorLog(log))
  closers.push(() => worker.close())
  await events.stopRequested
  await closers.closeAll()
}
