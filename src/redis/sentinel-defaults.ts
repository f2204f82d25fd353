/**
 * Before the first attempt: if one Sentinel has named another master, the others may still name the old one, which goes
 * on accepting for a while what the new one will not have.
 */
const FIRST_MS = 1000
/** About as many attempts as a failover takes. */
const QUICK_ATTEMPTS = 40
const LONGEST_MS = 20_000

/** ms until the next attempt to connect. @param random 0 to 1: clients must not all return at once */
export function sentinelRetryMs(attempt: number, random: number): number {
  if (attempt === 1) return Math.round(FIRST_MS * (0.9 + 0.2 * random))
  if (attempt <= QUICK_ATTEMPTS) return Math.round(200 + 100 * random)
  const ceiling = Math.min(LONGEST_MS, 300 * 2 ** Math.min(attempt - QUICK_ATTEMPTS, 10))
  return Math.round(ceiling * (0.5 + random / 2))
}

/**
 * Options of a connection by way of Sentinels. BullMQ waits a second or more between two attempts, and ioredis ten for a
 * server or a Sentinel whose network is gone, while another master is there. What the program gives counts.
 */
const DEFAULTS = {
  retryStrategy: (attempt: number) => sentinelRetryMs(attempt, Math.random()),
  connectTimeout: 2000,
}

/** Other connections are returned as they are. */
export function withSentinelDefaults<C>(connection: C): C {
  const { sentinels, status } = (connection ?? {}) as { sentinels?: unknown; status?: unknown }
  if (!Array.isArray(sentinels) || status !== undefined) return connection
  return { ...DEFAULTS, ...connection }
}
