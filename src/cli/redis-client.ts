import { Cluster, Redis } from 'ioredis'

const CONNECT_TIMEOUT_MS = 5000
const COMMAND_TIMEOUT_MS = 10_000
const MAX_RECONNECT_MS = 2000
/** After so many attempts in a row to learn the nodes of a cluster, commands fail. */
const MOST_ATTEMPTS = 3
const DEFAULT_PORT = 6379

const reconnectMs = (attempt: number) => Math.min(attempt * 200, MAX_RECONNECT_MS)

/**
 * Commands fail at once while there is no connection; ones that run for long, such as `top`, use the next connection.
 */
export function connectRedis(url: string): Redis {
  return new Redis(url, {
    connectionName: 'sluice-cli',
    connectTimeout: CONNECT_TIMEOUT_MS,
    commandTimeout: COMMAND_TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    // The check runs INFO, which a read-only user may not.
    enableReadyCheck: false,
    retryStrategy: reconnectMs,
  })
}

/** @param url of any node; the user and password of the others are the same */
export function connectCluster(url: string): Cluster {
  const { protocol, hostname, port, username, password } = new URL(url)
  return new Cluster([{ host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || DEFAULT_PORT) }], {
    enableReadyCheck: false,
    clusterRetryStrategy: (attempt) => (attempt > MOST_ATTEMPTS ? null : reconnectMs(attempt)),
    redisOptions: {
      connectionName: 'sluice-cli',
      connectTimeout: CONNECT_TIMEOUT_MS,
      commandTimeout: COMMAND_TIMEOUT_MS,
      ...(username ? { username: decodeURIComponent(username) } : {}),
      ...(password ? { password: decodeURIComponent(password) } : {}),
      ...(protocol === 'rediss:' ? { tls: {} } : {}),
    },
  })
}
