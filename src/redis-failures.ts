/** What Redis answers when it can not serve: the command was refused as a whole. */
const REFUSALS =
  /^(OOM|BUSY|LOADING|READONLY|MISCONF|NOREPLICAS|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|NOAUTH|NOPERM|WRONGPASS)\b/

/** What ioredis and the system say of a connection that is gone; the command may have been sent before. */
const CONNECTION =
  /Connection is (?:closed|silent)|aborted due to connection close|ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|ENOTFOUND|EHOSTUNREACH|Command timed out|max retries per request|Stream isn't writeable/i

/** Whether an error says that Redis refused the command as a whole, or that the connection failed; else undefined. */
export function failureKind({ message }: Error): 'refused' | 'connection' | undefined {
  if (REFUSALS.test(message)) return 'refused'
  return CONNECTION.test(message) ? 'connection' : undefined
}

/** Whether Redis has no memory for what it was to store; what needs none, and what lets jobs leave, it does. */
export function isOutOfMemory({ message }: Error): boolean {
  return message.startsWith('OOM ')
}
