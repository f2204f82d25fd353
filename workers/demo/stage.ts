import { randomBytes } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Closers } from 'sluice-programs'
import { parseRate } from '../../src/index.ts'
import { createReceivingDatabase, type ReceivingDatabase } from './database.ts'
import { type FollowedLog, followDepartures } from './departure-log.ts'
import type { FleetSettings } from './fleet.ts'
import { countLines } from './limits.ts'
import { type MailReceiver, startMailReceiver } from './mail-receiver.ts'
import { type DemoQueue, declareQueue, type QueueKind, type Shaper } from './queues.ts'
import type { OutboxLine } from './read-outbox.ts'
import type { Screen } from './screen.ts'
import type { Pace } from './windows.ts'

/** The context of every run of the demonstration. */
export interface RunContext {
  rate: string
  capacity: number
  workers: number
  lines: readonly OutboxLine[]
  redisUrl: string
  /** Whether the Redis already existed: then the run must leave no key behind. */
  redisIsGiven: boolean
  postgresUrl: string
  /** The compiled programs. */
  programs: string
  /** A temporary folder; each run creates its own inside. */
  dir: string
  screen: Screen
  signal: AbortSignal
}

/** Everything a run needs before the first process is started. */
export interface Stage {
  settings: FleetSettings
  queues: Record<QueueKind, DemoQueue>
  log: FollowedLog
  mail: MailReceiver
  database: ReceivingDatabase
}

/** Below PostgreSQL's default of 100 connections, which all worker processes of a queue share. */
const maxConnections = 80

/** The rate in whole numbers, as the report needs it: 2.5/s becomes 25 in 10 s. */
export function paceOf(rate: string): Pace {
  const { limit, periodMs } = parseRate(rate)
  let scale = 1
  while (!Number.isInteger(limit * scale) && scale < 1e6) scale *= 10
  return { limit: Math.round(limit * scale), periodUs: Math.round(periodMs * 1000 * scale), burst: 1 }
}

/** Enough for the rate with jobs of 200 ms, including the time between grant and start. */
function concurrencyOf({ rate, workers }: RunContext): number {
  const { limit, periodUs } = paceOf(rate)
  const wanted = Math.ceil((limit * 200_000) / periodUs / workers)
  return Math.max(1, Math.min(Math.max(5, wanted), Math.floor(maxConnections / workers)))
}

async function openQueue(kind: QueueKind, settings: FleetSettings, isGiven: boolean, closers: Closers) {
  const queue = await declareQueue(kind, settings, { rate: settings.rate, capacity: settings.capacity })
  closers.push(async () => {
    if (isGiven) await queue.remove()
    await queue.close()
  })
  return queue
}

/** Opens both receivers and both queues, under unique names. */
export async function setStage(shaper: Shaper, context: RunContext, closers: Closers): Promise<Stage> {
  const dir = join(context.dir, shaper)
  await mkdir(dir)
  const mail = await startMailReceiver(countLines(context.lines, 'email'))
  closers.push(() => mail.stop())
  const database = await createReceivingDatabase(context.postgresUrl, `sluice_demo_${randomBytes(6).toString('hex')}`)
  closers.push(() => database.drop())
  const settings: FleetSettings = {
    shaper,
    redisUrl: context.redisUrl,
    prefix: `sluice-demo-${randomBytes(6).toString('hex')}`,
    rate: context.rate,
    capacity: context.capacity,
    workers: context.workers,
    concurrency: concurrencyOf(context),
    smtpUrl: mail.url,
    databaseUrl: database.url,
    ledgerTable: database.ledgerTable,
    departureLog: join(dir, 'departures.ndjson'),
    programs: context.programs,
    dir,
  }
  const email = await openQueue('email', settings, context.redisIsGiven, closers)
  const write = await openQueue('write', settings, context.redisIsGiven, closers)
  const log = await followDepartures(settings.departureLog, shaper)
  closers.push(() => log.close())
  return { settings, queues: { email, write }, log, mail, database }
}
