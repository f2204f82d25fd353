import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Closers } from '../../src/programs/closers.ts'
import { holdLifeline } from '../services/exit-hook.ts'
import { startPostgres } from '../services/postgres.ts'
import { startRedis } from '../services/redis.ts'
import { limitsFor } from './limits.ts'
import type { DemoOptions } from './options.ts'
import type { OutboxLine } from './read-outbox.ts'
import type { Screen } from './screen.ts'
import type { RunContext } from './stage.ts'

/** Starts the services that all runs share, prints which they are, and returns the context of the runs. */
export async function openServices(
  options: DemoOptions,
  lines: readonly OutboxLine[],
  screen: Screen,
  signal: AbortSignal,
  closers: Closers,
): Promise<RunContext> {
  const dir = await mkdtemp(join(tmpdir(), 'sluice-demo-'))
  // The services end with this process in any case; the folder would be left behind if it were killed.
  const callOff = holdLifeline(['rm', '-rf', dir])
  closers.push(async () => {
    await rm(dir, { recursive: true, force: true })
    callOff()
  })
  screen.say('Starting Redis, SMTP server and PostgreSQL …')
  const redis = await startRedis({ allowEmulator: true })
  closers.push(() => redis.stop())
  screen.say(`Redis       ${redis.source}`)
  signal.throwIfAborted()
  const postgres = await startPostgres()
  closers.push(() => postgres.stop())
  screen.say(`PostgreSQL  ${postgres.source}`)
  screen.say('SMTP        smtp-server, inside this process')
  signal.throwIfAborted()
  const { rate, capacity, workers } = options
  const asked = { ...(rate !== undefined && { rate }), ...(capacity !== undefined && { capacity }) }
  const { notice, ...limits } = limitsFor(redis.kind, lines, asked)
  if (notice) screen.say(notice)
  return {
    ...limits,
    workers,
    dashboard: options.dashboard === true,
    redisUrl: redis.url,
    redisIsGiven: redis.kind === 'given',
    postgresUrl: postgres.url,
    dir,
    screen,
    signal,
  }
}
