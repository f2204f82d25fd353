import { once } from 'node:events'
import type { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { type RedisProxy, startProxy } from './proxy.ts'
import { useRedis } from './redis.ts'

const redis = useRedis(import.meta.url)
const key = `${redis.prefix}:n`

async function start(): Promise<RedisProxy> {
  await redis.cleanup()
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  return proxy
}

/** A client through the proxy that neither reconnects nor sends a command twice. */
async function throughProxy({ host, port }: RedisProxy): Promise<Redis> {
  const client = redis.client({ host, port, retryStrategy: () => null, lazyConnect: true })
  client.on('error', () => {})
  await client.connect()
  return client
}

const named = (name: string) => (command: string[]) => command[0]?.toLowerCase() === name

test('what is not to be broken passes unchanged, big binary values and pipelines included', async () => {
  const client = await throughProxy(await start())
  const big = Buffer.alloc(3_000_000, 'a\r\n$5\r\n*2\r\n')
  await client.set(key, big)
  expect((await client.getBuffer(key))?.equals(big)).toBe(true)
  const replies = await client.pipeline().incr(`${key}2`).lrange('none', 0, -1).get('none').incr(`${key}2`).exec()
  expect(replies).toEqual([1, [], null, 2].map((reply) => [null, reply]))
})

test('one reply is dropped after its command ran: earlier replies arrive, the connection closes', async () => {
  const proxy = await start()
  const client = await throughProxy(proxy)
  const dropped = proxy.dropReplyOf(named('incr'))
  const earlier = client.set(`${key}:earlier`, 'x')
  const lost = client.incr(key)
  await expect(lost).rejects.toThrow('Connection is closed')
  expect(await earlier).toBe('OK')
  await dropped
  expect(await redis.client().get(key)).toBe('1')
  const next = await throughProxy(proxy)
  expect(await next.incr(key)).toBe(2)
})

test('a client that tries again runs the command twice: the reply was dropped, not the command', async () => {
  const proxy = await start()
  const client = redis.client({ host: proxy.host, port: proxy.port, retryStrategy: () => 1 })
  const dropped = proxy.dropReplyOf(([name, first]) => name?.toLowerCase() === 'incr' && first === key, 2)
  expect(await client.incr(key)).toBe(3)
  await dropped
  client.disconnect()
})

test('in a pipeline the reply of the right command is dropped', async () => {
  const proxy = await start()
  const client = await throughProxy(proxy)
  const dropped = proxy.dropReplyOf(([name, , value]) => name?.toLowerCase() === 'rpush' && value === 'two')
  const sent = ['one', 'two', 'three'].map((value) => client.rpush(key, value).catch((error: Error) => error.message))
  expect(await Promise.all(sent)).toEqual([1, 'Connection is closed.', 'Connection is closed.'])
  await dropped
  expect(await redis.client().lrange(key, 0, 1)).toEqual(['one', 'two'])
})

test('a connection can be cut in the middle of a reply', async () => {
  const proxy = await start()
  await redis.client().set(key, 'x'.repeat(1000))
  const client = await throughProxy(proxy)
  const dropped = proxy.dropReplyOf(named('get'), 1, { deliverBytes: 100 })
  await expect(client.get(key)).rejects.toThrow('Connection is closed')
  await dropped
})

test('a reply can be withheld on a connection that stays open, and nothing more comes on it', async () => {
  const proxy = await start()
  const client = await throughProxy(proxy)
  const withheld = proxy.dropReplyOf(named('set'), 1, { holdOpen: true })
  const answers: unknown[] = []
  client.set(key, 'stored').then(
    (answer) => answers.push(answer),
    () => answers.push('failed'),
  )
  await withheld
  expect(await redis.client().get(key)).toBe('stored')
  expect(proxy.connections).toBe(1)
  expect(answers).toEqual([])
  proxy.cut()
  await expect.poll(() => answers).toEqual(['failed'])
})

test('cut ends the connections there are, and new ones pass', async () => {
  const proxy = await start()
  const client = await throughProxy(proxy)
  const closed = once(client, 'close')
  proxy.cut()
  await closed
  expect(proxy.connections).toBe(0)
  expect(await (await throughProxy(proxy)).ping()).toBe('PONG')
})

test('in a black hole nothing passes and nothing closes; after it, connections that lost bytes are cut', async () => {
  const proxy = await start()
  const [idle, stuck] = [await throughProxy(proxy), await throughProxy(proxy)]
  proxy.blackhole()
  const outcome = stuck.incr(key).then(
    () => 'answered',
    (error: Error) => error.message,
  )
  // Another connection to the server answers, so the command would have reached the server by now if it had passed.
  await redis.client().ping()
  expect(stuck.status).toBe('ready')
  proxy.restore()
  expect(await outcome).toBe('Connection is closed.')
  expect(await idle.get(key)).toBeNull()
})

test('latency is added to each round trip and taken back', async () => {
  const proxy = await start()
  const client = await throughProxy(proxy)
  const timeOfPing = async () => {
    const begun = performance.now()
    await client.ping()
    return performance.now() - begun
  }
  proxy.latency(100)
  expect(await timeOfPing()).toBeGreaterThanOrEqual(98)
  const values = await Promise.all(Array.from({ length: 50 }, () => client.incr(key)))
  expect(values).toEqual(Array.from({ length: 50 }, (_, index) => index + 1))
  proxy.latency(0)
  expect(await timeOfPing()).toBeLessThan(98)
})

test('refuse is a server that is down, resume brings it back on the same port', async () => {
  const proxy = await start()
  await proxy.refuse()
  await expect(throughProxy(proxy)).rejects.toThrow('Connection is closed')
  await proxy.resume()
  expect(await (await throughProxy(proxy)).ping()).toBe('PONG')
})

test('what is sent in pieces comes out whole and in order', async () => {
  const proxy = await start()
  const client = await throughProxy(proxy)
  proxy.slice(5)
  const text = 'a\r\n$5\r\n'.repeat(20)
  const startedMs = performance.now()
  expect(await client.pipeline().set(key, text).get(key).incr(`${key}2`).exec()).toEqual([
    [null, 'OK'],
    [null, text],
    [null, 1],
  ])
  // Each way is more than 100 bytes.
  expect(performance.now() - startedMs).toBeGreaterThan(40)
  proxy.slice(0)
  expect(await client.get(key)).toBe(text)
})

test('after redirect new connections reach another server, and those there are stay', async () => {
  const proxy = await start()
  const before = await throughProxy(proxy)
  await before.set(key, 'here')
  const other = await startProxy(redis.url)
  onTestFinished(() => other.stop())
  proxy.redirect(other.url)
  expect(await (await throughProxy(proxy)).get(key)).toBe('here')
  expect(await before.get(key)).toBe('here')
  expect(other.connections).toBe(1)
})

test('subscriptions pass', async () => {
  const proxy = await start()
  const [subscriber, publisher] = [await throughProxy(proxy), await throughProxy(proxy)]
  const channel = `${redis.prefix}:channel`
  const message = once(subscriber, 'message')
  await subscriber.subscribe(channel)
  await publisher.publish(channel, 'hello')
  expect(await message).toEqual([channel, 'hello'])
})
