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

/** The connection that admits jobs. Given options take precedence; a client stays as it is. */
export function admissionConnection(given: GatewayConnection): GatewayConnection {
  return isClient(given) ? given : ({ ...ADMISSION, ...given } as GatewayConnection)
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

function isClient(given: GatewayConnection): boolean {
  return 'duplicate' in given
}
