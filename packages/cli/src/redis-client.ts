import { Cluster, Redis } from 'ioredis'

const CONNECT_TIMEOUT_MS = 5000
const COMMAND_TIMEOUT_MS = 10_000
const MAX_RECONNECT_MS = 2000
/** After so many attempts in a row to reach a cluster for the first time, commands fail. */
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

/**
 * Once the cluster was reached, it is looked for until it is back: `top` and `metrics` run for long.
 * @param url of any node; the user and password of the others are the same
 */
export function connectCluster(url: string): Cluster {
  const { protocol, hostname, port, username, password } = new URL(url)
  let wasReached = false
  const cluster = new Cluster([{ host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || DEFAULT_PORT) }], {
    enableReadyCheck: false,
    clusterRetryStrategy: (attempt) => (attempt > MOST_ATTEMPTS && !wasReached ? null : reconnectMs(attempt)),
    redisOptions: {
      connectionName: 'sluice-cli',
      connectTimeout: CONNECT_TIMEOUT_MS,
      commandTimeout: COMMAND_TIMEOUT_MS,
      ...(username ? { username: decodeURIComponent(username) } : {}),
      ...(password ? { password: decodeURIComponent(password) } : {}),
      ...(protocol === 'rediss:' ? { tls: {} } : {}),
    },
  })
  cluster.once('ready', () => {
    wasReached = true
  })
  return cluster
}
