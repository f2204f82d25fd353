import { EventEmitter, once } from 'node:events'
import type { Redis } from 'ioredis'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { Client } from '../../src/redis/commands.ts'
import { LOOK_MS } from '../../src/redis/connection-watch.ts'
import { listenForWake } from '../../src/redis/wake-channel.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)

/** A subscribing connection that does what it is told. */
class FakeSubscriber extends EventEmitter {
  readonly channels = new Set<string>()
  disconnects = 0
  status = 'ready'
  /** Rejects or delays the next subscription. */
  subscribing: Promise<void> = Promise.resolve()

  async subscribe(channel: string): Promise<void> {
    await this.subscribing
    this.channels.add(channel)
  }

  async unsubscribe(channel: string): Promise<void> {
    this.channels.delete(channel)
  }

  disconnect(): void {
    this.disconnects += 1
  }
}

/** Resolves once the channel is subscribed, with what stops it. */
async function listening(client: Client, channel: string, listener: (message: string) => void): Promise<() => void> {
  const { subscribed, stop } = listenForWake(client, channel, listener)
  await subscribed
  return stop
}

let ports = 40_000

/** A client of a Redis of its own, and the subscribers that were made of it. */
function fakeClient(options: object = { host: 'here', port: ports++ }): {
  client: Client
  subscribers: FakeSubscriber[]
} {
  const subscribers: FakeSubscriber[] = []
  const duplicate = () => {
    const made = new FakeSubscriber()
    subscribers.push(made)
    return made
  }
  return { client: { options, isCluster: false, duplicate } as never as Client, subscribers }
}

/** Counts its calls. */
function counter(): { readonly listener: () => void; count: number } {
  const counting = { count: 0, listener: () => {} }
  counting.listener = () => {
    counting.count += 1
  }
  return counting
}

test('the listener is called once when it is subscribed, and for every message of its channel', async () => {
  const { client, subscribers } = fakeClient()
  const [a, b] = [counter(), counter()]
  const stopA = await listening(client, 'a', a.listener)
  const stopB = await listening(client, 'b', b.listener)
  expect([a.count, b.count]).toEqual([1, 1])
  subscribers[0]!.emit('message', 'a', '7')
  expect([a.count, b.count]).toEqual([2, 1])
  stopA()
  stopB()
})

test('all listeners for one Redis share a connection; the last one closes it', async () => {
  const { client, subscribers } = fakeClient()
  const stops = await Promise.all(['a', 'a', 'b'].map((channel) => listening(client, channel, () => {})))
  expect(subscribers.length).toBe(1)
  expect([...subscribers[0]!.channels].sort()).toEqual(['a', 'b'])
  stops[0]!()
  expect(subscribers[0]!.channels.has('a')).toBe(true)
  stops[1]!()
  expect(subscribers[0]!.channels.has('a')).toBe(false)
  expect(subscribers[0]!.disconnects).toBe(0)
  stops[2]!()
  expect(subscribers[0]!.disconnects).toBe(1)
})

test('two servers are two connections', async () => {
  const [one, other] = [fakeClient(), fakeClient()]
  const stops = [await listening(one.client, 'a', () => {}), await listening(other.client, 'a', () => {})]
  expect([one.subscribers.length, other.subscribers.length]).toEqual([1, 1])
  for (const stop of stops) stop()
})

test('two masters of the same Sentinels are two connections, and so are masters of the same name elsewhere', async () => {
  const sentinels = [{ host: 'here', port: ports++ }]
  const elsewhere = [{ host: 'there', port: ports++ }]
  const clients = [
    fakeClient({ sentinels, name: 'orders' }),
    fakeClient({ sentinels, name: 'mails' }),
    fakeClient({ sentinels: elsewhere, name: 'orders' }),
  ]
  const stops = await Promise.all(clients.map(({ client }) => listening(client, 'a', () => {})))
  expect(clients.map(({ subscribers }) => subscribers.length)).toEqual([1, 1, 1])
  for (const stop of stops) stop()
})

test('after the last one stopped, the next listener gets a new connection', async () => {
  const { client, subscribers } = fakeClient()
  const stop = await listening(client, 'a', () => {})
  stop()
  const again = await listening(client, 'a', () => {})
  // Stopping twice does not take the new connection away.
  stop()
  const woken = counter()
  const third = await listening(client, 'b', woken.listener)
  expect(subscribers.length).toBe(2)
  expect(subscribers[1]!.disconnects).toBe(0)
  again()
  third()
  expect(subscribers[1]!.disconnects).toBe(1)
})

test('after a reconnect everybody is woken: what was published meanwhile is gone', async () => {
  const { client, subscribers } = fakeClient()
  const [a, b] = [counter(), counter()]
  const stops = [await listening(client, 'a', a.listener), await listening(client, 'b', b.listener)]
  let subscribed = () => {}
  subscribers[0]!.subscribing = new Promise((resolve) => {
    subscribed = resolve
  })
  subscribers[0]!.emit('ready')
  await new Promise((resolve) => setImmediate(resolve))
  // Asked now, they could miss what is published until the channels are subscribed again.
  expect([a.count, b.count]).toEqual([1, 1])
  subscribed()
  await new Promise((resolve) => setImmediate(resolve))
  expect([a.count, b.count]).toEqual([2, 2])
  for (const stop of stops) stop()
})

test('an error of the connection does not end the process, and a failed subscription leaves none open', async () => {
  const { client, subscribers } = fakeClient()
  const stop = await listening(client, 'a', () => {})
  subscribers[0]!.emit('error', new Error('connection lost'))
  stop()
  const failing = fakeClient()
  const { duplicate } = failing.client
  failing.client.duplicate = ((...options: []) => {
    const made = (duplicate as unknown as () => FakeSubscriber)(...options)
    made.subscribing = Promise.reject(new Error('not allowed'))
    return made
  }) as never
  await expect(listening(failing.client, 'a', () => {})).rejects.toThrow('not allowed')
  expect(failing.subscribers[0]!.disconnects).toBe(1)
})

test('a second listener is woken only once the channel is subscribed', async () => {
  const { client, subscribers } = fakeClient()
  let subscribed: () => void = () => {}
  const { duplicate } = client
  client.duplicate = (() => {
    const made = (duplicate as unknown as () => FakeSubscriber)()
    made.subscribing = new Promise((resolve) => {
      subscribed = resolve
    })
    return made
  }) as never
  const [a, b] = [counter(), counter()]
  const both = Promise.all([listening(client, 'a', a.listener), listening(client, 'a', b.listener)])
  await new Promise((resolve) => setImmediate(resolve))
  // What is published before the subscription would be missed by both.
  expect([a.count, b.count]).toEqual([0, 0])
  subscribed()
  for (const stop of await both) stop()
  expect([a.count, b.count]).toEqual([1, 1])
  expect(subscribers[0]!.disconnects).toBe(1)
})

test('whoever stops before the subscription came up leaves no connection that goes on trying', async () => {
  const { client, subscribers } = fakeClient()
  const { duplicate } = client
  client.duplicate = (() => {
    const made = (duplicate as unknown as () => FakeSubscriber)()
    made.subscribing = new Promise(() => {})
    return made
  }) as never
  const woken = counter()
  listenForWake(client, 'a', woken.listener).stop()
  expect(subscribers[0]!.disconnects).toBe(1)
  expect(woken.count).toBe(0)
})

test('the message is handed on; after a gap it is empty', async () => {
  const { client, subscribers } = fakeClient()
  const heard: string[] = []
  const stop = await listening(client, 'a', (message) => heard.push(message))
  subscribers[0]!.emit('message', 'a', '7')
  subscribers[0]!.emit('ready')
  await new Promise((resolve) => setImmediate(resolve))
  expect(heard).toEqual(['', '7', ''])
  stop()
})

test('whoever waits to be subscribed when the connection is replaced is subscribed on the next one', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  const { client, subscribers } = fakeClient()
  const duplicate = client.duplicate as unknown as () => FakeSubscriber
  client.duplicate = (() => {
    const made = duplicate()
    if (subscribers.length > 1) return made
    made.subscribing = new Promise((_, reject) => {
      made.disconnect = () => reject(new Error('Connection is closed.'))
    })
    return Object.assign(made, { status: 'end', options: { failoverDetector: true } })
  }) as never
  const woken = counter()
  const listened = listening(client, 'a', woken.listener)
  vi.advanceTimersByTime(LOOK_MS)
  const stop = await listened
  expect(woken.count).toBeGreaterThan(0)
  expect([...subscribers[1]!.channels]).toEqual(['a'])
  stop()
})

test('a listener that stops while a lost connection is subscribed again leaves no rejection without an owner', async () => {
  const proxy = await startProxy(redis.url)
  const client = redis.client({ host: proxy.host, port: proxy.port, retryStrategy: () => 1 })
  const made: Redis[] = []
  const duplicate = client.duplicate.bind(client)
  client.duplicate = (options) => {
    made.push(duplicate(options))
    return made[0] as Redis
  }
  const unhandled: unknown[] = []
  const note = (reason: unknown) => unhandled.push(reason)
  process.on('unhandledRejection', note)
  onTestFinished(async () => {
    process.off('unhandledRejection', note)
    client.disconnect()
    await proxy.stop()
  })
  const stop = await listening(client as unknown as Client, redis.prefix, () => {})
  const [subscriber] = made as [Redis]
  const ready = once(subscriber, 'ready')
  proxy.cut()
  proxy.latency(100)
  await ready
  const ended = once(subscriber, 'end')
  stop()
  await ended
  await new Promise((resolve) => setImmediate(resolve))
  expect(unhandled).toEqual([])
})

test('a subscriber that ioredis ended over a failover is replaced', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  const { client, subscribers } = fakeClient()
  const woken = counter()
  const stop = await listening(client, 'a', woken.listener)
  Object.assign(subscribers[0]!, { status: 'end', options: { failoverDetector: true } })
  vi.advanceTimersByTime(LOOK_MS)
  await vi.waitFor(() => expect(woken.count).toBe(2), 60_000)
  expect(subscribers.map(({ channels }) => [...channels])).toEqual([['a'], ['a']])
  stop()
})

test('a subscriber that answers nothing is replaced, also that of a cluster: all channels anew, and everybody is woken', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  const { client, subscribers } = fakeClient()
  const [a, b] = [counter(), counter()]
  const stops = [await listening(client, 'a', a.listener), await listening(client, 'b', b.listener)]
  const look = async (times: number) => {
    for (let i = 0; i < times; i++) {
      vi.advanceTimersByTime(LOOK_MS)
      await new Promise((resolve) => setImmediate(resolve))
    }
  }
  await look(10)
  expect(subscribers).toHaveLength(1)
  subscribers[0]!.subscribing = new Promise(() => {})
  await look(5000 / LOOK_MS)
  expect(subscribers).toHaveLength(2)
  expect(subscribers[0]!.disconnects).toBe(1)
  expect([...subscribers[1]!.channels].sort()).toEqual(['a', 'b'])
  expect([a.count, b.count]).toEqual([2, 2])
  for (const stop of stops) stop()
  expect(subscribers[1]!.disconnects).toBe(1)
})

test('all that was published before an answered question has arrived; on a cluster nothing is known', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  const { client, subscribers } = fakeClient()
  const cluster = { ...fakeClient().client, isCluster: true } as Client
  const [one, other] = [listenForWake(client, 'a', () => {}), listenForWake(cluster, 'a', () => {})]
  await Promise.all([one.subscribed, other.subscribed])
  expect(one.receivedUntilMs()).toBe(Number.NEGATIVE_INFINITY)
  const beforeMs = performance.now()
  let answers = () => {}
  subscribers[0]!.subscribing = new Promise((resolve) => {
    answers = resolve
  })
  vi.advanceTimersByTime(LOOK_MS)
  const askedMs = performance.now()
  await new Promise((resolve) => setImmediate(resolve))
  expect(one.receivedUntilMs()).toBe(Number.NEGATIVE_INFINITY)
  answers()
  await new Promise((resolve) => setImmediate(resolve))
  expect(one.receivedUntilMs()).toBeGreaterThanOrEqual(beforeMs)
  expect(one.receivedUntilMs()).toBeLessThanOrEqual(askedMs)
  expect(other.receivedUntilMs()).toBe(Number.NEGATIVE_INFINITY)
  one.stop()
  other.stop()
})
