import { setTimeout as delay } from 'node:timers/promises'
import { Closers, reasonOf } from 'sluice-programs'
import type { Child } from './child.ts'
import { startProducers, startWorkers, stopAll } from './fleet.ts'
import { countLines } from './limits.ts'
import { Observer } from './observer.ts'
import { type QueueKind, queueKinds, type Shaper } from './queues.ts'
import type { QueueFacts } from './report.ts'
import { paceOf, type RunContext, type Stage, setStage } from './stage.ts'
import { readDepartures, type Watched, watchRun } from './watch.ts'
import { counted } from './words.ts'

/** The observations of a run, by queue. */
export interface RunResult {
  facts: Record<QueueKind, QueueFacts>
  /** Mails that were answered 451 on purpose. */
  sentAway: number
  /** Reasons of permanently failed jobs, a few of them. */
  failures: string[]
}

const bootTimeoutMs = 15_000
const bootLookMs = 100

/** Waits until the workers fetch jobs, so that the figures do not include their start-up. */
async function workersAreUp({ queues, settings }: Stage, signal: AbortSignal): Promise<void> {
  const deadlineMs = performance.now() + bootTimeoutMs
  // Some servers do not list their clients; there the run begins while the last workers may still be starting.
  while (performance.now() < deadlineMs) {
    const counts = await Promise.all(queueKinds.map((kind) => queues[kind].workers()))
    if (counts.every((count) => count >= settings.workers)) return
    await delay(bootLookMs, undefined, { signal })
  }
}

/** Aborts the run when a child fails. */
function abortOnFailure(children: readonly Child[], control: AbortController): void {
  for (const child of children) child.ended.then((error) => error && control.abort(error))
}

function watchedRun(stage: Stage, context: RunContext, observer: Observer, producersDone: () => boolean): Watched {
  const { settings, queues, log, mail, database } = stage
  const pace = paceOf(settings.rate)
  return {
    queues,
    lines: { email: countLines(context.lines, 'email'), write: countLines(context.lines, 'write') },
    capacity: settings.shaper === 'sluice' ? settings.capacity : undefined,
    ratePerSecond: (pace.limit * 1e6) / pace.periodUs,
    observer,
    log,
    mail,
    database,
    screen: context.screen,
    producersDone,
  }
}

async function gather(watched: Watched, rate: string): Promise<RunResult> {
  await readDepartures(watched)
  const { observer, queues, mail, database, lines } = watched
  const written = await database.arrivals()
  const factsOf = (kind: QueueKind) => ({ pace: paceOf(rate), lines: lines[kind], ...observer.of(kind) })
  return {
    facts: {
      email: { ...factsOf('email'), arrivals: mail.arrivals },
      write: { ...factsOf('write'), arrivals: written, surplus: (await database.rows()) - written.length },
    },
    sentAway: mail.sentAway(),
    failures: [...(await queues.email.failures()), ...(await queues.write.failures())],
  }
}

function announcement({ settings }: Stage, { lines, rate, capacity, workers }: RunContext): string {
  const places = settings.shaper === 'sluice' ? `${counted(capacity, 'place')}, ` : ''
  const name = settings.shaper === 'sluice' ? 'Sluice' : "BullMQ's own limiter"
  const processes = workers === 1 ? '1 worker process' : `${workers} worker processes`
  return `\n${name}: ${counted(lines.length, 'line')}, each queue: ${rate}, ${places}${processes}`
}

async function carryOut(stage: Stage, context: RunContext, closers: Closers): Promise<RunResult> {
  const control = new AbortController()
  const signal = AbortSignal.any([context.signal, control.signal])
  context.screen.say(announcement(stage, context))
  try {
    const workers = startWorkers(stage.settings)
    closers.push(() => stopAll(workers))
    abortOnFailure(workers, control)
    await workersAreUp(stage, signal)
    const observer = new Observer()
    const producers = await startProducers(stage.settings, context.lines, (news) => observer.hear(news))
    closers.push(() => stopAll(producers))
    abortOnFailure(producers, control)
    let producersDone = false
    void Promise.all(producers.map(({ ended }) => ended)).then(() => {
      producersDone = true
    })
    const watched = watchedRun(stage, context, observer, () => producersDone)
    await watchRun(watched, signal)
    // Stopped before the last reading, so that late effects, such as a duplicate delivery, are seen too.
    await stopAll(workers)
    return await gather(watched, context.rate)
  } catch (error) {
    // The error of an aborted wait does not say why; the signal's reason does.
    throw signal.aborted ? signal.reason : error
  } finally {
    context.screen.rest()
  }
}

/**
 * Sends the whole outbox once, shaped by this library or by BullMQ's own limiter, and returns the observations.
 * Everything it started is stopped when it returns or throws.
 */
export async function runOutbox(shaper: Shaper, context: RunContext): Promise<RunResult> {
  const closers = new Closers()
  try {
    const stage = await setStage(shaper, context, closers)
    context.signal.throwIfAborted()
    return await carryOut(stage, context, closers)
  } finally {
    await closers.closeAll().catch((error) => context.screen.say(`Not everything was stopped: ${reasonOf(error)}`))
  }
}
