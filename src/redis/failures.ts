/** What Redis answers when it can not serve: the command was refused as a whole. On a cluster also where it should go. */
const REFUSALS =
  /^(OOM|BUSY|LOADING|READONLY|MISCONF|NOREPLICAS|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|MOVED|ASK|NOAUTH|NOPERM|WRONGPASS)\b/

/** What ioredis says after its last try on a cluster, before the answer that it got then. */
const REDIRECTED = /^Too many Cluster redirections\. Last error: (?:\w+: )?/

/** What ioredis and the system say of a connection that is gone; the command may have been sent before. */
const CONNECTION =
  /Connection is (?:closed|silent)|aborted due to connection close|Cluster is (?:ended|disconnected|disconnecting)|Cluster isn't ready|Failed to refresh slots cache|None of startup nodes is available|ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|ENOTFOUND|EHOSTUNREACH|Command timed out|max retries per request|Stream isn't writeable/i

/** A script met keys that were on their way to another node: what it had done by then stays done. */
const TORN = /\bScript attempted to (?:access a non local key|execute a (?:write )?command while the cluster is down)/

/** Whether an error says that Redis refused the command as a whole, or that the connection failed; else undefined. */
export function failureKind({ message }: Error): 'refused' | 'connection' | undefined {
  const last = message.replace(REDIRECTED, '')
  if (REFUSALS.test(last)) return 'refused'
  if (last !== message) return 'connection'
  return CONNECTION.test(message) || TORN.test(message) ? 'connection' : undefined
}

/** The caller may not do this, and will not be allowed to by waiting. */
const DENIALS = /^(NOAUTH|NOPERM|WRONGPASS)\b/

/** Whether it is over some time, by itself. */
export function isPassing(error: Error): boolean {
  return failureKind(error) !== undefined && !DENIALS.test(error.message)
}

/** Whether Redis has no memory for what it was to store; what needs none, and what lets jobs leave, it does. */
export function isOutOfMemory({ message }: Error): boolean {
  return message.startsWith('OOM ')
}
