import type { Socket } from 'node:net'

interface Connector {
  readonly firstError?: Error | undefined
  connect(emitter: unknown): Promise<Socket>
  disconnect(): void
  check(info: object): boolean
}

/** Loads ioredis when it connects, as BullMQ does: it takes longer to load than this package. */
class LateConnector implements Connector {
  readonly #options: object
  #connector: Connector | undefined
  #isWanted = false

  constructor(options: object) {
    this.#options = options
  }

  async connect(emitter: unknown): Promise<Socket> {
    this.#isWanted = true
    if (!this.#connector) {
      const { NewestMasterConnector } = await import('./sentinel-connector.ts')
      if (!this.#isWanted) throw new Error('Connection is closed.')
      this.#connector = new NewestMasterConnector(this.#options as never)
    }
    return this.#connector.connect(emitter)
  }

  disconnect(): void {
    this.#isWanted = false
    this.#connector?.disconnect()
  }

  check(info: object): boolean {
    return this.#connector?.check(info) ?? true
  }

  get firstError(): Error | undefined {
    return this.#connector?.firstError
  }
}

/** About as many attempts as a failover takes. */
const QUICK_ATTEMPTS = 40
const LONGEST_MS = 20_000
/** ioredis waits 10 s for a connection, and forever for an answer. */
const LONGEST_ASK_MS = 2000
/** Time between attempts to subscribe to a Sentinel again. By default, ioredis makes none. */
const LONGEST_LISTEN_MS = 10_000

/** ms until the next attempt to connect. @param random 0 to 1: clients must not all return at once */
export function sentinelRetryMs(attempt: number, random: number): number {
  if (attempt === 1) return Math.round(50 + 100 * random)
  if (attempt <= QUICK_ATTEMPTS) return Math.round(200 + 100 * random)
  const ceiling = Math.min(LONGEST_MS, 300 * 2 ** Math.min(attempt - QUICK_ATTEMPTS, 10))
  return Math.round(ceiling * (0.5 + random / 2))
}

/**
 * Defaults of a connection by way of Sentinels. BullMQ and ioredis take longer to switch to another master: BullMQ
 * waits at least a second between two attempts. The program's own options take precedence.
 */
const DEFAULTS = {
  retryStrategy: (attempt: number) => sentinelRetryMs(attempt, Math.random()),
  connectTimeout: LONGEST_ASK_MS,
  sentinelCommandTimeout: LONGEST_ASK_MS,
  sentinelReconnectStrategy: (attempt: number) => Math.min(LONGEST_LISTEN_MS, 1000 * attempt),
  Connector: LateConnector,
}

/** Other connections are returned as they are. */
export function withSentinelDefaults<C>(connection: C): C {
  const { sentinels, status } = (connection ?? {}) as { sentinels?: unknown; status?: unknown }
  if (!Array.isArray(sentinels) || status !== undefined) return connection
  return { ...DEFAULTS, ...connection }
}
