import type { Client } from './redis-commands.ts'

type Listener = () => void

/** What is used of ioredis beyond the client that BullMQ knows. */
interface Subscriber {
  subscribe(channel: string): Promise<unknown>
  unsubscribe(channel: string): Promise<unknown>
  disconnect(): void
  on(event: string, listener: (...args: never[]) => void): unknown
}

/** One subscribing connection, shared by all workers of this process that use the same Redis. */
class Hub {
  readonly #subscriber: Subscriber
  readonly #listeners = new Map<string, Set<Listener>>()

  constructor(subscriber: Subscriber) {
    this.#subscriber = subscriber
    subscriber.on('message', (channel: string) => this.#wake(channel))
    // What was published while the connection was down is gone: everybody asks again.
    subscriber.on('ready', () => {
      for (const channel of this.#listeners.keys()) this.#wake(channel)
    })
    // The worker's own connection reports what is wrong; without a listener an 'error' would throw.
    subscriber.on('error', () => {})
  }

  get idle(): boolean {
    return this.#listeners.size === 0
  }

  async listen(channel: string, listener: Listener): Promise<void> {
    const listeners = this.#listeners.get(channel) ?? new Set()
    this.#listeners.set(channel, listeners)
    listeners.add(listener)
    if (listeners.size === 1) await this.#subscriber.subscribe(channel)
    listener()
  }

  remove(channel: string, listener: Listener): void {
    const listeners = this.#listeners.get(channel)
    listeners?.delete(listener)
    if (!listeners || listeners.size > 0) return
    this.#listeners.delete(channel)
    this.#subscriber.unsubscribe(channel).catch(() => {})
  }

  close(): void {
    this.#subscriber.disconnect()
  }

  #wake(channel: string): void {
    for (const listener of this.#listeners.get(channel) ?? []) listener()
  }
}

const hubs = new Map<string, Hub>()

/**
 * Calls the listener whenever something is published on the channel, and once when it is subscribed.
 * @returns stops listening; the last one closes the connection
 */
export async function listenForWake(client: Client, channel: string, listener: Listener): Promise<() => void> {
  const key = connectionKey(client)
  let hub = hubs.get(key)
  if (!hub) {
    const options = { maxRetriesPerRequest: null, connectionName: `${client.options.connectionName ?? ''}:wake` }
    hub = new Hub(client.duplicate(options) as unknown as Subscriber)
    hubs.set(key, hub)
  }
  const stop = () => {
    hub.remove(channel, listener)
    if (!hub.idle) return
    hubs.delete(key)
    hub.close()
  }
  try {
    await hub.listen(channel, listener)
  } catch (error) {
    stop()
    throw error
  }
  return stop
}

function connectionKey({ options, isCluster }: Client): string {
  const { host, port, path, db, username, startupNodes } = options as Record<string, unknown>
  return JSON.stringify([isCluster, host, port, path, db, username, startupNodes])
}
