import type { Redis } from 'ioredis'
import type { Client } from './commands.ts'
import { everyLook, hasGivenUp, noteCloses, SilenceWatch } from './connection-watch.ts'

/** Receives the published message, or '' if messages may have been missed. */
type Listener = (message: string) => void

/** One subscribing connection, shared by all workers of this process that use the same Redis. */
class Hub {
  readonly #connect: () => Redis
  #subscriber: Redis
  readonly #listeners = new Map<string, Set<Listener>>()
  readonly #subscribed = new Map<string, Promise<unknown>>()
  readonly #watch: SilenceWatch
  readonly #stopWatching: () => void

  constructor(connect: () => Redis) {
    this.#connect = connect
    this.#subscriber = this.#open()
    this.#watch = new SilenceWatch({
      state: () => stateOf(this.#subscriber),
      received: () => this.#subscriber.stream?.bytesRead ?? 0,
      // Redis answers a repeated SUBSCRIBE like the first. On a cluster it uses the subscribing connection, too.
      ask: () => this.#again(),
      replace: () => this.#replace(),
    })
    this.#stopWatching = everyLook(() => {
      this.#watch.look()
      if (hasGivenUp(this.#subscriber)) this.#replace()
    })
  }

  /** Redis answers in order, so every message published before the call has arrived. */
  get receivedUntilMs(): number {
    return this.#watch.answeredPingMs
  }

  get idle(): boolean {
    return this.#listeners.size === 0
  }

  async listen(channel: string, listener: Listener): Promise<void> {
    const listeners = this.#listeners.get(channel) ?? new Set()
    this.#listeners.set(channel, listeners)
    listeners.add(listener)
    if (listeners.size === 1) this.#subscribed.set(channel, this.#subscriber.subscribe(channel))
    await this.#untilSubscribed(channel)
    if (listeners.has(listener)) listener('')
  }

  /** Also if the connection is replaced meanwhile, which rejects the call on the old one. */
  async #untilSubscribed(channel: string): Promise<void> {
    const subscribed = this.#subscribed.get(channel)
    try {
      await subscribed
    } catch (error) {
      if (this.#subscribed.get(channel) === subscribed) throw error
      await this.#untilSubscribed(channel)
    }
  }

  remove(channel: string, listener: Listener): void {
    const listeners = this.#listeners.get(channel)
    listeners?.delete(listener)
    if (!listeners || listeners.size > 0) return
    this.#listeners.delete(channel)
    this.#subscribed.delete(channel)
    this.#subscriber.unsubscribe(channel).catch(() => {})
  }

  close(): void {
    this.#stopWatching()
    this.#subscriber.disconnect()
  }

  #open(): Redis {
    const subscriber = this.#connect()
    noteCloses(subscriber)
    subscriber.on('message', (channel: string, message: string) => this.#wake(channel, message))
    subscriber.on('ready', () => this.#subscribeAll(subscriber))
    // The worker's own connection reports the problem; without a listener an 'error' would throw.
    subscriber.on('error', () => {})
    return subscriber
  }

  #again(): Promise<unknown> | undefined {
    const [channel] = this.#listeners.keys()
    return channel === undefined ? undefined : this.#subscriber.subscribe(channel)
  }

  #replace(): void {
    this.#subscriber.disconnect()
    this.#subscriber = this.#open()
    this.#subscribeAll(this.#subscriber)
  }

  /** Messages published while there was no connection are lost: all listeners ask again once none can be missed. */
  #subscribeAll(subscriber: Redis): void {
    for (const channel of this.#listeners.keys()) {
      const subscribed = subscriber.subscribe(channel)
      this.#subscribed.set(channel, subscribed)
      const wake = () => this.#wake(channel, '')
      subscribed.then(wake, wake)
    }
  }

  #wake(channel: string, message: string): void {
    for (const listener of this.#listeners.get(channel) ?? []) listener(message)
  }
}

/** A cluster also has the status `ready` when it can be used, and `connect` before that. */
function stateOf({ status }: Redis): 'live' | 'opening' | 'away' {
  return status === 'ready' ? 'live' : status === 'connect' ? 'opening' : 'away'
}

const hubs = new Map<string, Hub>()

export interface Listening {
  /** Resolves once messages arrive; rejects if the subscription fails. */
  readonly subscribed: Promise<void>
  /**
   * All messages published before this time have arrived, or '' instead of them. ms of `performance.now()`. A cluster
   * may lose messages between its nodes: there it stays -Infinity.
   */
  receivedUntilMs(): number
  /** Stops listening; the last one closes the connection, even if it never came up. */
  stop(): void
}

/** Calls the listener with every message on the channel, and once with '' after the subscription. */
export function listenForWake(client: Client, channel: string, listener: Listener): Listening {
  const key = connectionKey(client)
  let hub = hubs.get(key)
  if (!hub) {
    const options = {
      maxRetriesPerRequest: null,
      connectionName: `${client.options.connectionName ?? ''}:wake`,
      // If the hub closes meanwhile, ioredis would subscribe again by a promise without a handler.
      autoResubscribe: false,
    }
    hub = new Hub(() => client.duplicate(options) as unknown as Redis)
    hubs.set(key, hub)
  }
  const shared = hub
  let stopped = false
  const stop = () => {
    if (stopped) return
    stopped = true
    shared.remove(channel, listener)
    if (!shared.idle) return
    hubs.delete(key)
    shared.close()
  }
  const subscribed = shared.listen(channel, listener).catch((error: unknown) => {
    if (stopped) return
    stop()
    throw error
  })
  const receivedUntilMs = () => (client.isCluster ? Number.NEGATIVE_INFINITY : shared.receivedUntilMs)
  return { subscribed, receivedUntilMs, stop }
}

function connectionKey({ options, isCluster }: Client): string {
  const { host, port, path, db, username, startupNodes, sentinels, name } = options as Record<string, unknown>
  // The same Sentinels may serve several masters, by name.
  return JSON.stringify([isCluster, host, port, path, db, username, startupNodes, sentinels, name])
}
