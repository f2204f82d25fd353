import type { RedisConnection } from 'bullmq'
import type { Client } from '../redis/commands.ts'

/** What is used of ioredis beyond its types, to end a client. */
interface Endable {
  /** Pending while it waits to reconnect, whatever its status: the nodes of a cluster that end late change that. */
  readonly reconnectTimeout: unknown
  manuallyClosing: boolean
  disconnect(): void
  setStatus(status: string): void
  flushQueue(error: Error): void
}

/** BullMQ's connection has its client from the start, but exposes it only when it is ready. */
export function clientOf(connection: RedisConnection): Client {
  return (connection as unknown as { readonly _client: Client })._client
}

/**
 * Of a client that waits to reconnect, ioredis cancels the attempt, but never reports that the connection has ended,
 * and BullMQ's close and pause would wait for that for ever.
 */
export function endReconnecting(connection: RedisConnection): void {
  const client = clientOf(connection) as unknown as Endable
  if (!client.reconnectTimeout) return
  client.disconnect()
  client.setStatus('end')
  client.flushQueue(new Error('Connection is closed.'))
  // After a pause it is used again.
  client.manuallyClosing = false
}

/** The connections to Sentinels, which ioredis leaves open after QUIT, would keep the program alive. */
export function leaveSentinels(connection: RedisConnection): void {
  const client = clientOf(connection) as Client & { options?: { failoverDetector?: boolean } }
  if (client.options?.failoverDetector && client.status === 'end') client.disconnect()
}
