import type { InspectorOptions } from 'sluice/inspect'

type Connection = InspectorOptions['connection']

/**
 * A browser waits for the answer: without a connection a command fails soon, and a connection that is silent while an
 * answer is due is replaced.
 */
const WAITED_FOR = {
  maxRetriesPerRequest: 1,
  connectTimeout: 2000,
  commandTimeout: 4000,
  socketTimeout: 8000,
  retryStrategy: (attempt: number) => Math.min(5000, 100 * 2 ** Math.min(attempt, 6)) * (0.5 + Math.random() / 2),
}

/** For reads. A client that was passed in is used as it is. */
export function readingConnection(given: Connection): Connection {
  return isClient(given) ? given : ({ ...given, ...WAITED_FOR } as Connection)
}

/** For changes: none is sent a second time. A client that was passed in is used as it is. */
export function writingConnection(given: Connection): Connection {
  if (isClient(given)) return given
  return { ...given, ...WAITED_FOR, maxRetriesPerRequest: 0, autoResendUnfulfilledCommands: false } as Connection
}

function isClient(given: Connection): boolean {
  return 'duplicate' in given
}
