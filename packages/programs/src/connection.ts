import { Redis } from 'ioredis'
import { lackedRights, neededCommands, type Role, unusableText } from 'sluice/internal'
import { StartError } from './errors.ts'

const PROBE_TIMEOUT_MS = 5000
const MIN_RECONNECT_MS = 1000
const MAX_RECONNECT_MS = 20_000
const MAX_DECIDING_RECONNECT_MS = 2000
const DECISION_TIMEOUT_MS = 1000

/**
 * Redis connection options for a worker process.
 *
 * A worker waits while Redis is unavailable, so it never gives up a command. A connection that is silent for longer
 * than the blocking wait (5 s) is dead and is replaced: half-open connections report no error by themselves. Reconnects
 * are spread out, so that a fleet does not reconnect all at once.
 */
export function workerConnection(url: string) {
  return {
    url,
    maxRetriesPerRequest: null,
    connectTimeout: PROBE_TIMEOUT_MS,
    socketTimeout: 15_000,
    retryStrategy: (attempt: number) => reconnectDelayMs(attempt, Math.random()),
  }
}

/** Redis connection options for reads of the queue that must fail fast. */
export function inspectionConnection(url: string, timeoutMs: number) {
  return {
    ...workerConnection(url),
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    commandTimeout: timeoutMs,
  }
}

/**
 * Redis connection options for decisions that a caller waits for: fails at once without a connection, sends nothing
 * twice, and reconnects within two seconds.
 */
export function decidingConnection(url: string) {
  return {
    ...inspectionConnection(url, DECISION_TIMEOUT_MS),
    autoResendUnfulfilledCommands: false,
    connectTimeout: 2000,
    socketTimeout: 5000,
    retryStrategy: (attempt: number) => Math.min(MAX_DECIDING_RECONNECT_MS, reconnectDelayMs(attempt, Math.random())),
  }
}

/** Between 1 and 20 seconds: the ceiling doubles with each attempt, and the delay is random below it. */
export function reconnectDelayMs(attempt: number, random: number): number {
  const ceiling = Math.min(MAX_RECONNECT_MS, MIN_RECONNECT_MS * 2 ** Math.min(attempt, 10))
  return Math.round(MIN_RECONNECT_MS + random * (ceiling - MIN_RECONNECT_MS))
}

/** What the user of a program has to be allowed: see docs/acl. */
export interface NeededRights {
  readonly role: Role
  readonly prefix: string
  readonly queueNames: readonly string[]
}

/**
 * Checks, before anything is built, that Redis answers, does not evict data, and lets the program do all that it needs:
 * a script that is denied a command leaves half of its work behind, such as a job that ran and is in no state.
 * @throws StartError when Redis cannot be reached, may evict keys, or denies a command.
 */
export async function checkRedis(url: string, needed?: NeededRights): Promise<void> {
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: PROBE_TIMEOUT_MS,
    commandTimeout: PROBE_TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  })
  let lastError: unknown
  redis.on('error', (error) => {
    lastError = error
  })
  try {
    await redis.connect()
    const memory = await redis.info('memory')
    refuseEviction(/^maxmemory_policy:(\S+)/m.exec(memory)?.[1])
    if (needed) await refuseMissingRights(redis, needed)
  } catch (error) {
    if (error instanceof StartError) throw error
    // ioredis rejects with "Connection is closed"; the error event before it has the reason.
    throw new StartError(unusableText(hostOf(url), (lastError ?? error) as Error))
  } finally {
    redis.disconnect()
  }
}

/** Host and port of a URL: the parts that a message may show. */
export function hostOf(url: string): string {
  return new URL(url).host
}

function refuseEviction(policy: string | undefined): void {
  if (policy === undefined || policy === 'noeviction') return
  throw new StartError(
    `Redis may evict queued jobs: expected maxmemory-policy noeviction, got ${policy} (set it with: redis-cli config set maxmemory-policy noeviction)`,
  )
}

async function refuseMissingRights(redis: Redis, { role, prefix, queueNames }: NeededRights): Promise<void> {
  for (const name of queueNames) {
    const lacked = await lackedRights(`${prefix}:${name}`, redis, role, neededCommands(role))
    if (!lacked) continue
    throw new StartError(`queue "${name}": ${lacked} (grant it what docs/acl/${role}.acl lists)`)
  }
}
