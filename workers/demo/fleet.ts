import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Child, startChild } from './child.ts'
import type { ProducerNews } from './producer.ts'
import { type QueueKind, type QueueSettings, queueEnv, queueKinds, queueNames } from './queues.ts'
import type { OutboxLine } from './read-outbox.ts'
import { compiledProgram } from './run-folder.ts'

/** The settings for the processes of one run. */
export interface FleetSettings extends QueueSettings {
  rate: string
  capacity: number
  /** Worker processes for each queue. */
  workers: number
  /** Jobs at once per worker process. */
  concurrency: number
  smtpUrl: string
  databaseUrl: string
  ledgerTable: string
  departureLog: string
  /** The compiled programs. */
  programs: string
  /** Folder for logs and for the input of the producers. */
  dir: string
}

const producers = 2
const producerProgram = 'workers/demo/producer.ts'

/** The statements that the database workers of the demonstration know. */
export const statementsFile = fileURLToPath(new URL('./statements.json', import.meta.url))

/** The worker programs; for the comparison, the same work with BullMQ's own Worker. */
const workerPrograms: Readonly<Record<FleetSettings['shaper'], Readonly<Record<QueueKind, string>>>> = {
  sluice: { email: 'workers/email.ts', write: 'workers/db-writes.ts' },
  bullmq: { email: 'workers/demo/limited-email.ts', write: 'workers/demo/limited-db-writes.ts' },
}

function workerEnv(kind: QueueKind, settings: FleetSettings): Record<string, string> {
  return {
    ...queueEnv(settings),
    QUEUE: queueNames[kind],
    RATE: settings.rate,
    CAPACITY: String(settings.capacity),
    CONCURRENCY: String(settings.concurrency),
    SMTP_URL: settings.smtpUrl,
    DATABASE_URL: settings.databaseUrl,
    LEDGER_TABLE: settings.ledgerTable,
    STATEMENTS: statementsFile,
    POOL_SIZE: String(settings.concurrency),
    SHUTDOWN_TIMEOUT_MS: '8000',
    DEPARTURE_LOG: settings.departureLog,
    HEALTH_PORT: '0',
  }
}

export function startWorkers(settings: FleetSettings): Child[] {
  return queueKinds.flatMap((kind) =>
    Array.from({ length: settings.workers }, (_, index) => {
      const name = `${queueNames[kind]} worker ${index + 1}`
      return startChild({
        name,
        program: compiledProgram(settings.programs, workerPrograms[settings.shaper][kind]),
        env: workerEnv(kind, settings),
        logFile: join(settings.dir, `${name.replaceAll(' ', '-')}.log`),
      })
    }),
  )
}

/** Starts the producers, each with every other line; `hear` receives their reports. */
export async function startProducers(
  settings: FleetSettings,
  lines: readonly OutboxLine[],
  hear: (news: ProducerNews) => void,
): Promise<Child[]> {
  const shares = Array.from({ length: producers }, (_, share) =>
    lines.filter((_line, index) => index % producers === share),
  )
  const files = shares.map((_, index) => join(settings.dir, `producer-${index + 1}.json`))
  await Promise.all(shares.map((share, index) => writeFile(files[index]!, JSON.stringify(share))))
  return files.map((input, index) => {
    const child = startChild({
      name: `producer ${index + 1}`,
      program: compiledProgram(settings.programs, producerProgram),
      env: { ...queueEnv(settings), INPUT: input },
      logFile: input.replace(/json$/, 'log'),
    })
    child.process.on('message', (news) => hear(news as ProducerNews))
    return child
  })
}

/** Stops all at once and waits until they are gone. */
export async function stopAll(children: readonly Child[]): Promise<void> {
  await Promise.all(children.map((child) => child.stop()))
}
