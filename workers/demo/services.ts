import type { Closers } from 'sluice-programs'
import { startPostgres } from '../services/postgres.ts'
import { startRedis } from '../services/redis.ts'
import { limitsFor } from './limits.ts'
import type { StartOptions } from './options.ts'
import type { OutboxLine } from './read-outbox.ts'
import { makeRunFolder } from './run-folder.ts'
import type { Screen } from './screen.ts'
import type { RunContext } from './stage.ts'

/** Starts the services that all runs share, prints which they are, and returns the context of the runs. */
export async function openServices(
  options: StartOptions,
  lines: readonly OutboxLine[],
  screen: Screen,
  signal: AbortSignal,
  closers: Closers,
): Promise<RunContext> {
  const dir = await makeRunFolder(closers)
  screen.say('Starting Redis, SMTP server and PostgreSQL …')
  const startingRedis = keep(startRedis({ allowEmulator: true }), closers)
  // A given one is there or is not: the others need not start first.
  if (process.env.REDIS_URL) await startingRedis
  const [redis, postgres] = await allStarted([startingRedis, keep(startPostgres(), closers)])
  screen.say(`Redis       ${redis.source}`)
  screen.say(`PostgreSQL  ${postgres.source}`)
  screen.say('SMTP        smtp-server, inside this process')
  signal.throwIfAborted()
  const { rate, capacity, workers, programs } = options
  const asked = { ...(rate !== undefined && { rate }), ...(capacity !== undefined && { capacity }) }
  const { notice, ...limits } = limitsFor(redis.kind, lines, asked)
  if (notice) screen.say(notice)
  return {
    ...limits,
    workers,
    redisUrl: redis.url,
    redisIsGiven: redis.kind === 'given',
    postgresUrl: postgres.url,
    programs,
    dir,
    screen,
    signal,
  }
}

/** What starts is stopped in the end, also if another service cannot be started. */
async function keep<Service extends { stop(): Promise<void> }>(
  starting: Promise<Service>,
  closers: Closers,
): Promise<Service> {
  const service = await starting
  closers.push(() => service.stop())
  return service
}

/** Waits for all of them, even if one fails: then the others can be stopped. */
async function allStarted<Results extends readonly unknown[]>(
  starting: readonly [...{ [Index in keyof Results]: Promise<Results[Index]> }],
): Promise<Results> {
  const ended = await Promise.allSettled(starting)
  for (const end of ended) if (end.status === 'rejected') throw end.reason
  return (await Promise.all(starting)) as unknown as Results
}
