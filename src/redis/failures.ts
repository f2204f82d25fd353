/** Redis's replies when it cannot serve: the command was refused as a whole. On a cluster, redirections too. */
const REFUSALS =
  /^(OOM|BUSY|LOADING|READONLY|MISCONF|NOREPLICAS|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|MOVED|ASK|NOAUTH|NOPERM|WRONGPASS)\b/

/** ioredis's message after its last attempt on a cluster, before the reply that it got then. */
const REDIRECTED = /^Too many Cluster redirections\. Last error: (?:\w+: )?/

/** Messages of ioredis and the system about a lost connection; the command may have been sent before. */
const CONNECTION =
  /Connection is (?:closed|silent)|aborted due to connection close|Cluster is (?:ended|disconnected|disconnecting)|Cluster isn't ready|Failed to refresh slots cache|None of startup nodes is available|ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|Command timed out|max retries per request|Stream isn't writeable/i

/** A script met keys that were being moved to another node: its earlier writes remain. */
const TORN = /\bScript attempted to (?:access a non local key|execute a (?:write )?command while the cluster is down)/

/**
 * Whether an error means that Redis refused the command as a whole, or that the connection failed; otherwise undefined.
 */
export function failureKind({ message }: Error): 'refused' | 'connection' | undefined {
  const last = message.replace(REDIRECTED, '')
  if (REFUSALS.test(last)) return 'refused'
  if (last !== message) return 'connection'
  return CONNECTION.test(message) || TORN.test(message) ? 'connection' : undefined
}

/** Whether a node refused a call because the hash slot of its keys is moving to another one. */
export function isMoving({ message }: Error): boolean {
  return /^(TRYAGAIN|MOVED|ASK)\b/.test(message.replace(REDIRECTED, ''))
}

/** The caller lacks permission, and waiting does not help. */
const DENIALS = /^(NOAUTH|NOPERM|WRONGPASS)\b/

/** Whether the failure is temporary. */
export function isPassing(error: Error): boolean {
  return failureKind(error) !== undefined && !DENIALS.test(error.message)
}

/** Whether Redis refused because it loads its data. */
export function isLoading({ message }: Error): boolean {
  return message.startsWith('LOADING ')
}

/** Whether Redis lacked memory for a write. It still runs commands that need none, and scripts that let jobs depart. */
export function isOutOfMemory({ message }: Error): boolean {
  return message.startsWith('OOM ')
}

/** Inside a script, Redis 7.0 words the error differently. */
const DENIED = /^NOPERM\b|The user executing the script can't/
/** Managed servers may disable or rename administrative commands. */
const UNKNOWN = /^ERR unknown (sub)?command/i

/** Whether Redis reports that the user, or any user, may not run the command. */
export function isDenied(error: unknown): error is Error {
  return error instanceof Error && (DENIED.test(error.message) || UNKNOWN.test(error.message))
}
