import type { GatewayConnection } from './options.ts'

const MIN_RECONNECT_MS = 50
const MAX_RECONNECT_MS = 5000

/**
 * Fails fast while Redis is unavailable, and sends nothing twice: if a reply is lost, the command fails, so that the
 * caller knows. A connection that is silent while a reply is due is replaced.
 */
const ADMISSION = {
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  commandTimeout: 1000,
  socketTimeout: 5000,
  connectTimeout: 2000,
  retryStrategy: (attempt: number) => reconnectDelayMs(attempt, Math.random()),
}

/** Reading events blocks for ten seconds at a time, which is not a failure. */
const EVENTS = {
  maxRetriesPerRequest: null,
  socketTimeout: 15_000,
  connectTimeout: 2000,
  retryStrategy: ADMISSION.retryStrategy,
}
/** Options that would abort or refuse a blocking command. */
const NOT_FOR_EVENTS = [
  'commandTimeout',
  'enableOfflineQueue',
  'autoResendUnfulfilledCommands',
  'maxRetriesPerRequest',
  'socketTimeout',
]

/**
 * An admission waits for replicas at most so often (`shape.durability`): each of its two scripts behind a question that
 * is under way. The time behind the first is taken off that of its own question.
 */
const MOST_QUESTIONS = 2

/** How long the gateway waits for Redis, for one queue. */
export interface WaitingTimes {
  readonly callMs: number
  readonly commandMs: number
}

/** @param replicasMs how long the declared shape lets Redis wait for replicas, 0 if it does not */
export function waitingTimes(given: GatewayConnection, redisTimeoutMs: number, replicasMs: number): WaitingTimes {
  const connection = admissionConnection(given, replicasMs)
  const { commandTimeout, socketTimeout } = optionsOf(connection)
  return {
    callMs: redisTimeoutMs + MOST_QUESTIONS * replicasMs,
    commandMs: Math.min(commandTimeout ?? Number.POSITIVE_INFINITY, socketTimeout ?? Number.POSITIVE_INFINITY),
  }
}

/** Whether the gateway may give up while Redis still waits for replicas. */
export function mayGiveUp({ callMs, commandMs }: WaitingTimes, replicasMs: number): boolean {
  return replicasMs > 0 && (commandMs <= replicasMs || callMs <= MOST_QUESTIONS * replicasMs)
}

/**
 * The connection that admits jobs. Given options take precedence; a client stays as it is. While Redis waits for
 * replicas, nothing else is answered.
 */
export function admissionConnection(given: GatewayConnection, replicasMs: number): GatewayConnection {
  if (isClient(given)) return given
  const commandTimeout = ADMISSION.commandTimeout + replicasMs
  const socketTimeout = ADMISSION.socketTimeout + replicasMs
  return { ...ADMISSION, commandTimeout, socketTimeout, ...given } as GatewayConnection
}

/** The connection that reads events about ended jobs. */
export function eventsConnection(given: GatewayConnection): GatewayConnection {
  if (isClient(given)) return given
  const kept = Object.entries(given).filter(([name]) => !NOT_FOR_EVENTS.includes(name))
  return { ...EVENTS, ...Object.fromEntries(kept) } as GatewayConnection
}

/** A random delay up to a ceiling that doubles with each attempt, so that a fleet does not reconnect all at once. */
export function reconnectDelayMs(attempt: number, random: number): number {
  const ceiling = Math.min(MAX_RECONNECT_MS, MIN_RECONNECT_MS * 2 ** Math.min(attempt, 10))
  return Math.round(MIN_RECONNECT_MS + random * (ceiling - MIN_RECONNECT_MS))
}

interface Timeouts {
  readonly commandTimeout?: number
  readonly socketTimeout?: number
}

/** Those of a cluster's nodes have a place of their own. */
function optionsOf(connection: GatewayConnection): Timeouts {
  if (!isClient(connection)) return connection as Timeouts
  const { options = {} } = connection as { options?: Timeouts & { readonly redisOptions?: Timeouts } }
  return options.redisOptions ?? options
}

function isClient(given: GatewayConnection): boolean {
  return 'duplicate' in given
}
