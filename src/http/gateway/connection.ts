import type { GatewayConnection } from './options.ts'

const MIN_RECONNECT_MS = 50
const MAX_RECONNECT_MS = 5000

/**
 * Whoever waits for an answer is told soon that Redis is away, and nothing is sent twice: a command whose answer was lost
 * fails, as the caller has to know. A connection that is silent while an answer is due is replaced.
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

/** Waiting for events blocks for ten seconds at a time, which is no fault. */
const EVENTS = {
  maxRetriesPerRequest: null,
  socketTimeout: 15_000,
  connectTimeout: 2000,
  retryStrategy: ADMISSION.retryStrategy,
}
/** What would end, or refuse, a command that blocks. */
const NOT_FOR_EVENTS = [
  'commandTimeout',
  'enableOfflineQueue',
  'autoResendUnfulfilledCommands',
  'maxRetriesPerRequest',
  'socketTimeout',
]

/** The connection over which jobs are admitted. What was given comes first; a client stays as it is. */
export function admissionConnection(given: GatewayConnection): GatewayConnection {
  return isClient(given) ? given : ({ ...ADMISSION, ...given } as GatewayConnection)
}

/** The connection over which the ends of jobs are heard of. */
export function eventsConnection(given: GatewayConnection): GatewayConnection {
  if (isClient(given)) return given
  const kept = Object.entries(given).filter(([name]) => !NOT_FOR_EVENTS.includes(name))
  return { ...EVENTS, ...Object.fromEntries(kept) } as GatewayConnection
}

/** Anything up to a ceiling that doubles with each attempt, so that a fleet does not come back in one instant. */
export function reconnectDelayMs(attempt: number, random: number): number {
  const ceiling = Math.min(MAX_RECONNECT_MS, MIN_RECONNECT_MS * 2 ** Math.min(attempt, 10))
  return Math.round(MIN_RECONNECT_MS + random * (ceiling - MIN_RECONNECT_MS))
}

function isClient(given: GatewayConnection): boolean {
  return 'duplicate' in given
}
