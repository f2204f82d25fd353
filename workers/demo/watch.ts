import { setInterval as every } from 'node:timers/promises'
import type { ReceivingDatabase } from './database.ts'
import type { FollowedLog } from './departure-log.ts'
import type { QueueProgress } from './draw.ts'
import type { MailReceiver } from './mail-receiver.ts'
import type { Observer } from './observer.ts'
import { type DemoQueue, type QueueKind, queueKinds, queueNames } from './queues.ts'
import type { Screen } from './screen.ts'

/** What is monitored during a run. */
export interface Watched {
  queues: Readonly<Record<QueueKind, DemoQueue>>
  lines: Readonly<Record<QueueKind, number>>
  capacity: number | undefined
  ratePerSecond: number
  observer: Observer
  log: FollowedLog
  mail: MailReceiver
  database: ReceivingDatabase
  screen: Screen
  /** True once both producers have ended. */
  producersDone: () => boolean
}

const tickMs = 250
const stallTimeoutMs = 30_000

/** Reads the departures that workers wrote since the last call. */
export async function readDepartures({ log, observer }: Pick<Watched, 'log' | 'observer'>): Promise<void> {
  for (const { queue, departure } of await log.read()) observer.departed(queue, departure, Date.now() * 1000)
}

async function progress(watched: Watched): Promise<QueueProgress[]> {
  const { observer, lines, capacity, ratePerSecond, queues, mail, database } = watched
  const arrived: Record<QueueKind, number> = {
    email: mail.arrivals.filter(({ taken }) => taken).length,
    write: await database.count(),
  }
  return Promise.all(
    queueKinds.map(async (kind) => ({
      title: queueNames[kind],
      lines: lines[kind],
      accepted: observer.of(kind).accepted.length,
      refused: observer.of(kind).refused,
      depth: await queues[kind].depth(),
      capacity,
      arrived: arrived[kind],
      halfSeconds: observer.halfSeconds(kind, Date.now() * 1000),
      ratePerSecond,
    })),
  )
}

/** Whether the producers have ended, and no job waits, runs or will be retried. */
async function isOver({ producersDone, queues }: Watched): Promise<boolean> {
  if (!producersDone()) return false
  const unfinished = await Promise.all(queueKinds.map((kind) => queues[kind].unfinished()))
  return unfinished.every((count) => count === 0)
}

/**
 * Shows the run until nothing is left to do.
 * @throws Error when nothing happened for half a minute (longer at rates below one in 6 s)
 */
export async function watchRun(watched: Watched, signal: AbortSignal): Promise<void> {
  const startedAtMs = performance.now()
  const timeoutMs = stallTimeoutMs + 5000 / watched.ratePerSecond
  let activity = -1
  let movedAtMs = startedAtMs
  for await (const _ of every(tickMs, undefined, { signal })) {
    const nowMs = performance.now()
    await readDepartures(watched)
    if (watched.observer.activity !== activity) {
      activity = watched.observer.activity
      movedAtMs = nowMs
    } else if (nowMs - movedAtMs > timeoutMs) {
      throw new Error(`nothing moved for ${Math.round(timeoutMs / 1000)} s: giving up`)
    }
    const over = await isOver(watched)
    watched.screen.show(`${((nowMs - startedAtMs) / 1000).toFixed(1)} s`, await progress(watched))
    if (over) return
  }
}
