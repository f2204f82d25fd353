import { createHash } from 'node:crypto'
import { Redis } from 'ioredis'
import { Redis as Redis5 } from 'ioredis5'
import { beforeAll, expect, test } from 'vitest'
import { captureBullmqScripts } from '../../src/redis/bullmq-scripts.ts'
import { ScriptSet } from '../../src/redis/scripts.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const set = new ScriptSet(captureBullmqScripts(), 'shared')
const { name, keys } = set.command('read-meter')

/** What the parts of ioredis that are used here look like. */
interface Scripts {
  readonly scriptsSet: Readonly<Record<string, { readonly sha: string }>>
  [command: string]: unknown
}

function defined(client: object): Scripts {
  set.define(client as Redis)
  return client as Scripts
}

let first: Scripts
beforeAll(() => {
  first = defined(redis.client())
})

test('a text is hashed once for all clients, and each calls its own server with it', async () => {
  const second = defined(redis.client())
  expect(second.scriptsSet[name]).toBe(first.scriptsSet[name])
  expect(Object.keys(second.scriptsSet)).toEqual(Object.keys(first.scriptsSet))
  const gone = redis.client()
  const third = defined(gone)
  gone.disconnect()
  const call = (client: Scripts) =>
    (client[name] as (...args: string[]) => Promise<unknown[]>)(`${redis.prefix}:q`, '0')
  expect((await call(second))[1]).toBe(null)
  await expect(call(third)).rejects.toThrow('Connection is closed')
})

test.each([
  ['of another version of ioredis', () => new Redis5({ lazyConnect: true })],
  ['whose keys have a prefix', () => new Redis({ lazyConnect: true, keyPrefix: 'p:' })],
])('a client %s has scripts of its own', (_title, client) => {
  const other = defined(client())
  expect(other.scriptsSet[name]).not.toBe(first.scriptsSet[name])
  expect(other.scriptsSet[name]!.sha).toBe(first.scriptsSet[name]!.sha)
})

test('other texts by the same name are not taken', () => {
  const others = new ScriptSet(captureBullmqScripts(), 'shared', () => 'return 1')
  const client = new Redis({ lazyConnect: true })
  others.define(client)
  expect(others.command('read-meter')).toEqual({ name, keys })
  expect((client as unknown as Scripts).scriptsSet[name]!.sha).toBe(createHash('sha1').update('return 1').digest('hex'))
})

test('the queues of a process share them, also in pipelines and when the first one is closed', async () => {
  const opened = async () => {
    const queue = shop.queue({ capacity: 1 })
    await queue.waitUntilReady()
    const client = (await queue.getBackend().client) as unknown as Scripts & { pipeline(): object }
    return { queue, client }
  }
  const one = await opened()
  const other = await opened()
  const ours = Object.keys(one.client.scriptsSet).filter((command) => command.startsWith('sluice:'))
  expect(ours.length).toBeGreaterThan(40)
  for (const command of ours) expect(other.client.scriptsSet[command]).toBe(one.client.scriptsSet[command])
  expect(other.client.pipeline()).toHaveProperty([ours[0]!])
  await one.queue.close()
  await other.queue.add('job', {})
})
