import type { RedisConnection } from 'bullmq'
import type { Client } from '../redis/commands.ts'
import { hasGivenUp } from '../redis/connection-watch.ts'
import { untilServed } from '../redis/until-served.ts'

/** The parts of ioredis that we use beyond its types, to end a client. */
interface Endable {
  /** Pending while it waits to reconnect, whatever its status: the nodes of a cluster that end late change that. */
  readonly reconnectTimeout: unknown
  manuallyClosing: boolean
  disconnect(): void
  setStatus(status: string): void
  flushQueue(error: Error): void
}

/** The parts of BullMQ's connection that we use beyond its types. */
interface Internals {
  readonly _client: Client
  readonly status: 'initializing' | 'ready' | 'closing' | 'closed'
  readonly closing: boolean
  readonly extraOptions: { readonly shared?: boolean }
  initializing: Promise<Client>
  init(): Promise<Client>
  readonly handleClientError: () => void
  readonly handleClientClose: () => void
  readonly handleClientReady: () => void
  /** Restores the connection after the loss of all nodes of a cluster. */
  readonly patchedBlockingClusterClient?: unknown
  patchBlockingClusterClient?(): void
  /** Present until the client is released. */
  disableBlockingClusterReconnect?(): void
  releaseBlockingClusterClientPatch?(): void
}

const internals = (connection: RedisConnection) => connection as unknown as Internals

/** BullMQ's connection has its client from the start, but exposes it only when it is ready. */
export function clientOf(connection: RedisConnection): Client {
  return internals(connection)._client
}

/** Whether it was ever open: nothing sent before that has an effect. */
export function hasOpened(connection: RedisConnection): boolean {
  return internals(connection).status !== 'initializing'
}

/** Ends a connection at once, unless its client is the program's: unanswered calls fail. */
export function cutConnection(connection: RedisConnection): void {
  if (internals(connection).extraOptions.shared) return
  endReconnecting(connection)
  clientOf(connection).disconnect()
}

/**
 * If a client waits to reconnect, ioredis cancels the attempt, but never reports that the connection has ended, and
 * BullMQ's close and pause would wait for that forever.
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

/**
 * A cluster client has ended once the last of its nodes has. If a command in flight is redirected then, as during a
 * failover, ioredis opens a node again; if one finds no node, BullMQ connects again; and BullMQ's close and pause would
 * wait for the end forever.
 */
export function leaveCluster(connection: RedisConnection): void {
  const client = clientOf(connection)
  if (!client.isCluster || client.status === 'end') return
  internals(connection).disableBlockingClusterReconnect?.()
  const leave = (node: Client) => {
    if (client.status === 'disconnecting') node.disconnect()
  }
  client.on('+node', leave)
  client.once('end', () => client.removeListener('+node', leave))
}

/** After a pause: BullMQ may connect again if a command finds no node. */
export function returnToCluster(connection: RedisConnection): void {
  const recovering = internals(connection)
  if (!recovering.patchedBlockingClusterClient) return
  recovering.releaseBlockingClusterClientPatch?.()
  recovering.patchBlockingClusterClient?.()
}

/** The connections to Sentinels, which ioredis leaves open after QUIT, would keep the program alive. */
export function leaveSentinels(connection: RedisConnection): void {
  const client = clientOf(connection) as Client & { options?: { failoverDetector?: boolean } }
  if (client.options?.failoverDetector && client.status === 'end') client.disconnect()
}

/**
 * BullMQ asks a new connection once for the version of Redis. If Redis does not serve at that moment, for example a
 * cluster with a dead node, every user of the connection would fail for the life of the process. A worker could not
 * store the ends of its jobs, and successful jobs would be recorded as failed. So the call is repeated.
 * @param over whether the connection is no longer needed
 */
export function openUntilServed(connection: RedisConnection, over: () => boolean): void {
  const opening = internals(connection)
  const again = () => {
    opening._client.off('error', opening.handleClientError)
    opening._client.off('close', opening.handleClientClose)
    opening._client.off('ready', opening.handleClientReady)
    return opening.init()
  }
  // ioredis does not open it again, such as after a `retryStrategy` returned null.
  const hasEnded = () => opening._client.status === 'end' && !hasGivenUp(opening._client)
  const isOver = () => opening.closing || over() || hasEnded()
  // BullMQ itself reports the first failure.
  opening.initializing = opening.initializing.catch((error: unknown) => untilServed(error, again, isOver, () => {}))
  opening.initializing.catch(() => {})
}
