import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { expect, onTestFinished, test, vi } from 'vitest'
import { NewestMasterConnector } from '../../src/redis/sentinel-connector.ts'
import { withSentinelDefaults } from '../../src/redis/sentinel-defaults.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { FakeSentinel, MASTER } from './fixtures/fake-sentinel.ts'

const redis = useRedis(import.meta.url)

/** Two addresses of the same Redis: the master before and after a failover. */
async function addresses() {
  const proxies = await Promise.all([startProxy(redis.url), startProxy(redis.url)])
  for (const proxy of proxies) onTestFinished(() => proxy.stop())
  return proxies.map(({ port }) => port) as [number, number]
}

async function sentinelsOf(...masters: number[]) {
  return Promise.all(masters.map((master) => FakeSentinel.start(master)))
}

function connect(sentinels: readonly { readonly port: number }[], options: object = {}): Redis {
  const { host, port, ...others } = redis.connection
  const client = new Redis(
    withSentinelDefaults({
      ...others,
      sentinels: sentinels.map((one) => ({ host: '127.0.0.1', port: one.port })),
      name: MASTER,
      failoverDetector: true,
      retryStrategy: () => 10,
      ...options,
    }),
  )
  client.on('error', () => {})
  onTestFinished(() => client.disconnect())
  return client
}

async function connected(...how: Parameters<typeof connect>): Promise<Redis> {
  const client = connect(...how)
  await once(client, 'ready')
  return client
}

/** Waits until so many clients listen to each. */
async function heardBy(sentinels: readonly FakeSentinel[], listeners: readonly number[]): Promise<void> {
  await vi.waitFor(() => expect(sentinels.map((sentinel) => sentinel.listeners)).toEqual(listeners), 60_000)
}

/** Nothing listens there. */
const NOWHERE = 1

const portOf = (client: Redis) => client.stream.remotePort

test('of several answers the newest counts', async () => {
  const [before, now] = await addresses()
  const sentinels = await sentinelsOf(before, now, before)
  sentinels[1]?.names(now, 1)
  const client = await connected(sentinels)
  expect(portOf(client)).toBe(now)
})

test('a Sentinel that does not answer holds nothing up, nor does one that may not be asked for the epoch', async () => {
  const [master] = await addresses()
  const sentinels = await sentinelsOf(master, master)
  sentinels[0]!.mode = 'silent'
  sentinels[1]!.mode = 'denies'
  const client = await connected(sentinels, { sentinelCommandTimeout: 1_000_000, connectTimeout: 1_000_000 })
  expect(portOf(client)).toBe(master)
})

test('a master is left once another one is named, and not again when the next Sentinel names the same', async () => {
  const [before, now] = await addresses()
  const sentinels = await sentinelsOf(before, before, before)
  const client = await connected(sentinels)
  await heardBy(sentinels, [1, 1, 1])
  const first = vi.spyOn(client.stream, 'destroy')
  sentinels[2]?.names(now, 1)
  sentinels[2]?.tell(now, 'another')
  sentinels[2]?.tell(now)
  await once(client, 'ready')
  expect(portOf(client)).toBe(now)
  expect(first).toHaveBeenCalledTimes(1)
  const second = vi.spyOn(client.stream, 'destroy')
  for (const sentinel of sentinels.slice(0, 2)) {
    sentinel.names(now, 1)
    sentinel.tell(now)
  }
  // The next failover arrives after these.
  for (const sentinel of sentinels) sentinel.names(before, 2)
  sentinels[0]?.tell(before)
  await once(client, 'ready')
  expect(portOf(client)).toBe(before)
  expect(second).toHaveBeenCalledTimes(1)
})

test('a master is left before a replica takes over, and no other connection to it is opened until it has', async () => {
  const [before, now] = await addresses()
  const sentinels = await sentinelsOf(before, before)
  const client = connect(sentinels)
  await once(client, 'ready')
  await vi.waitFor(() => expect(sentinels.map(({ listeners }) => listeners)).toEqual([1, 1]), 60_000)
  sentinels[0]?.tellOf('+failover-state-send-slaveof-noone', now, before)
  const left = once(client, 'connecting')
  sentinels[0]?.tellOf('+failover-state-send-slaveof-noone', before, now)
  await left
  // It would have connected by now, as one does that has heard nothing.
  await once(connect(sentinels), 'ready')
  expect(client.status).toBe('connecting')
  sentinels[0]?.names(now, 1)
  sentinels[0]?.tellOf('+promoted-slave', before, now)
  await once(client, 'ready')
  expect(portOf(client)).toBe(now)
})

test('if no replica takes over, the master is used again; a client that is disconnected does not wait for that', async () => {
  const [master, replica] = await addresses()
  const [sentinel] = await sentinelsOf(master)
  const clients = [connect([sentinel!]), connect([sentinel!])] as const
  await Promise.all(clients.map((client) => once(client, 'ready')))
  await vi.waitFor(() => expect(sentinel?.listeners).toBe(2), 60_000)
  const resolving = vi.spyOn(NewestMasterConnector.prototype, 'resolve')
  const left = Promise.all(clients.map((client) => once(client, 'connecting')))
  sentinel?.tellOf('+failover-state-send-slaveof-noone', master, replica)
  await left
  const [staying, leaving] = clients
  leaving.disconnect()
  // Meanwhile another one has connected.
  await once(connect([sentinel!]), 'ready')
  expect(resolving.mock.settledResults).toContainEqual({ type: 'fulfilled', value: null })
  expect(staying.status).toBe('connecting')
  await once(staying, 'ready')
  expect(portOf(staying)).toBe(master)
})

test('the one that named another master is waited for', async () => {
  const [before, now] = await addresses()
  const sentinels = await sentinelsOf(before, before)
  const client = await connected(sentinels, { sentinelCommandTimeout: 1_000_000, connectTimeout: 1_000_000 })
  await vi.waitFor(() => expect(sentinels[1]?.listeners).toBe(1), 60_000)
  sentinels[1]!.mode = 'silent'
  sentinels[1]?.names(now, 1)
  sentinels[1]?.tell(now)
  // Longer than others are waited for.
  await sleep(500)
  sentinels[1]?.answer()
  await once(client, 'ready')
  expect(portOf(client)).toBe(now)
})

test('a server that turns out to be a replica is not asked for ever: the Sentinels are believed in turn', async () => {
  const [replica, master] = await addresses()
  const sentinels = await sentinelsOf(master, replica)
  sentinels[1]?.names(replica, 7)
  const client = connect(sentinels)
  const { connector } = client as unknown as { connector: { check(info: object): boolean } }
  const check = connector.check.bind(connector)
  connector.check = (info) => check({ ...info, role: portOf(client) === replica ? 'slave' : 'master' })
  await once(client, 'ready')
  expect(portOf(client)).toBe(master)
})

test('a client that is disconnected hears no Sentinel any more', async () => {
  const [master] = await addresses()
  const sentinels = await sentinelsOf(master, master)
  const client = await connected(sentinels)
  await heardBy(sentinels, [1, 1])
  client.disconnect()
  await heardBy(sentinels, [0, 0])
})

test('further Sentinels, of which one of the given ones knows, are heard, too', async () => {
  const [master] = await addresses()
  const sentinels = await sentinelsOf(master, master)
  sentinels[0]!.others = [sentinels[1]!.port]
  connect(sentinels.slice(0, 1))
  await heardBy(sentinels, [1, 1])
})

test('if those that may be asked at once do not answer, the next ones are asked', async () => {
  const [master] = await addresses()
  const sentinels = await sentinelsOf(master)
  const client = await connected([{ port: NOWHERE }, ...sentinels], { sentinelMaxConnections: 1 })
  expect(portOf(client)).toBe(master)
})

test('a Sentinel whose newer answer leads nowhere keeps no client from the master, which then hears of the next one', async () => {
  const [master, next] = await addresses()
  const sentinels = await sentinelsOf(NOWHERE, master)
  sentinels[0]?.names(NOWHERE, 7)
  const client = connect(sentinels, { retryStrategy: () => 1 })
  await vi.waitFor(() => expect(client.status).toBe('ready'), 60_000)
  expect(portOf(client)).toBe(master)
  await vi.waitFor(() => expect(sentinels[1]?.listeners).toBe(1), 60_000)
  sentinels[1]?.names(next, 8)
  sentinels[1]?.tell(next)
  await once(client, 'ready')
  expect(portOf(client)).toBe(next)
})

test('a Sentinel that is not to be connected to again is heard again with the next connection', async () => {
  const [master] = await addresses()
  const [sentinel] = await sentinelsOf(master)
  const client = await connected([sentinel!], { sentinelReconnectStrategy: () => null })
  await vi.waitFor(() => expect(sentinel?.listeners).toBe(1), 60_000)
  sentinel?.drop()
  await vi.waitFor(() => expect(sentinel?.listeners).toBe(0), 60_000)
  client.stream.destroy()
  await vi.waitFor(() => expect(sentinel?.listeners).toBe(1), 60_000)
})
