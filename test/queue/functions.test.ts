import type { Redis } from 'ioredis'
import { Redis as Redis5 } from 'ioredis5'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { captureBullmqScripts } from '../../src/redis/bullmq-scripts.ts'
import type { Client } from '../../src/redis/commands.ts'
import { ScriptSet } from '../../src/redis/scripts.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
let sets = 0

/** A set of scripts whose library no other has: its text has a name of its own. */
async function ownSet(): Promise<ScriptSet> {
  sets += 1
  const text = `return { 'read', '${redis.prefix} ${sets}', #KEYS, ARGV[1] }`
  const set = new ScriptSet(captureBullmqScripts(), redis.prefix, (file) =>
    file.startsWith('verbs/') ? text : 'return {}',
  )
  onTestFinished(async () => {
    await redis
      .client()
      .call('FUNCTION', 'DELETE', set.library.name)
      .catch(() => {})
  })
  return set
}

/** What a client sends, by the names of the commands. */
function sentBy(client: Redis): string[] {
  const sent: string[] = []
  const { sendCommand } = client
  client.sendCommand = function (this: Redis, command, ...rest) {
    const { name, args } = command as { name: string; args: unknown[] }
    sent.push([name, ...(/^function$/i.test(name) ? [String(args[0])] : [])].join(' ').toLowerCase())
    return sendCommand.call(this, command, ...rest)
  } as typeof sendCommand
  return sent
}

const reading = (client: object, set: ScriptSet): Promise<unknown> =>
  (client as unknown as Client).runCommand?.(set.command('read-meter').name, [`${redis.prefix}:q`, 'x']) ??
  (client as Record<string, (...args: string[]) => Promise<unknown>>)[set.command('read-meter').name]?.(
    `${redis.prefix}:q`,
    'x',
  ) ??
  Promise.reject(new Error('not defined'))

const REPLY = ['read', expect.stringContaining(redis.prefix), 1, 'x']

test('a library is loaded when its first function is called, once for all clients', async () => {
  const set = await ownSet()
  const { host, port } = redis.client().options
  const older = new Redis5({ host: host as string, port: port as number })
  onTestFinished(() => older.disconnect())
  for (const [i, client] of [redis.client(), redis.client(), older].entries()) {
    set.define(client)
    await client.ping()
    const sent = sentBy(client as Redis)
    expect(await reading(client, set)).toEqual(REPLY)
    expect(sent).toEqual(i === 0 ? ['fcall', 'function load', 'fcall'] : ['fcall'])
  }
})

test('calls that are sent together load it once', async () => {
  const set = await ownSet()
  const client = redis.client()
  set.define(client)
  const sent = sentBy(client)
  await Promise.all([reading(client, set), reading(client, set), reading(client, set)])
  expect(sent.filter((name) => name === 'function load')).toHaveLength(1)
})

test('calls keep their order while it is loaded', async () => {
  const text = "redis.call('RPUSH', KEYS[1], ARGV[1]) return 1"
  const set = new ScriptSet(captureBullmqScripts(), `${redis.prefix}o`, (file) =>
    file.startsWith('verbs/') ? text : 'return {}',
  )
  onTestFinished(async () => {
    await redis
      .client()
      .call('FUNCTION', 'DELETE', set.library.name)
      .catch(() => {})
  })
  const client = redis.client()
  set.define(client)
  await client.ping()
  const key = `${redis.prefix}:order`
  const push = (n: number) =>
    (client as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>)[set.command('give-back').name]?.(
      key,
      n,
    )
  const calls = [push(1), push(2)]
  const { sendCommand } = client
  client.sendCommand = function (this: Redis, command, ...rest) {
    // Right behind what loads it.
    if (/^function$/i.test((command as { name: string }).name)) {
      client.sendCommand = sendCommand
      setImmediate(() => calls.push(push(3)))
    }
    return sendCommand.call(this, command, ...rest)
  } as typeof sendCommand
  await vi.waitFor(() => expect(calls).toHaveLength(3))
  await Promise.all(calls)
  expect(await client.lrange(key, 0, -1)).toEqual(['1', '2', '3'])
})

test('one that is deleted is loaded again', async () => {
  const set = await ownSet()
  const client = redis.client()
  set.define(client)
  await reading(client, set)
  await client.call('FUNCTION', 'DELETE', set.library.name)
  expect(await reading(client, set)).toEqual(REPLY)
})

test('a view that has to end an override goes as a text, and only then', async () => {
  const text = "if ARGV[1] == 'x' then redis.call('DEL', KEYS[1]) end return { 'read', KEYS[1], 1, ARGV[1] }"
  const set = new ScriptSet(captureBullmqScripts(), `${redis.prefix}v`, (file) =>
    file.startsWith('verbs/') ? text : 'return {}',
  )
  onTestFinished(async () => {
    await redis
      .client()
      .call('FUNCTION', 'DELETE', set.library.name)
      .catch(() => {})
  })
  const client = redis.client()
  set.define(client)
  await client.ping()
  expect(await reading(client, set)).toEqual(REPLY)
  const sent = sentBy(client)
  const command = set.command('read-meter').name
  await (client as unknown as Record<string, (...args: string[]) => Promise<unknown>>)[command]?.(
    `${redis.prefix}:q`,
    'y',
  )
  await reading(client, set)
  expect(sent).toEqual(['fcall', 'fcall', 'evalsha'])
})

test("functions: 'never' sends texts", async () => {
  const set = await ownSet()
  const client = redis.client()
  set.define(client, 'never')
  const sent = sentBy(client)
  expect(await reading(client, set)).toEqual(REPLY)
  expect(sent).not.toContain('fcall')
})

test('the names of libraries and functions are those of their texts', async () => {
  const [one, other] = [await ownSet(), await ownSet()]
  expect(one.library.name).toMatch(/^sluice_[\da-f]{12}$/)
  expect(one.library.name).not.toBe(other.library.name)
  expect(one.functionOf('read-meter')).toBe(`${one.library.name}_read_meter`)
})

describe('where functions are refused', () => {
  const REFUSALS: readonly [what: string, command: string, message: string][] = [
    ['no user may call them', 'fcall', "NOPERM User x has no permissions to run the 'fcall' command"],
    ['there are none', 'fcall', "ERR unknown command 'FCALL', with args beginning with: "],
    [
      'a server without them says so in other quotes',
      'fcall',
      'ERR unknown command `FCALL`, with args beginning with: ',
    ],
    ['this user may not load them', 'function', "NOPERM User x has no permissions to run the 'function|load' command"],
    ['it cannot load them, as the emulator', 'function', 'ERR No functions registered'],
    ['there is no memory for them', 'function', "OOM command not allowed when used memory > 'maxmemory'."],
  ]

  test.each(REFUSALS)(
    'as %s, texts are sent, and functions are tried again a minute later',
    async (_what, refused, message) => {
      const set = await ownSet()
      const client = redis.client()
      set.define(client)
      let refuses = true
      const { sendCommand } = client
      client.sendCommand = function (this: Redis, command, ...rest) {
        if (refuses && (command as { name: string }).name.toLowerCase() === refused) {
          const { promise, reject } = command as { promise: Promise<unknown>; reject: (error: Error) => void }
          reject(new Error(message))
          return promise
        }
        return sendCommand.call(this, command, ...rest)
      } as typeof sendCommand
      const now = performance.now.bind(performance)
      let aheadMs = 0
      const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + aheadMs)
      onTestFinished(() => clock.mockRestore())
      const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
      onTestFinished(() => warned.mockRestore())
      expect(await reading(client, set)).toEqual(REPLY)
      refuses = false
      const sent = sentBy(client)
      await reading(client, set)
      expect(sent).toEqual(['evalsha'])
      aheadMs = 60_001
      sent.length = 0
      expect(await reading(client, set)).toEqual(REPLY)
      expect(sent).toEqual(['fcall', 'function load', 'fcall'])
    },
  )

  test('errors of a script itself are no refusals', async () => {
    const text = "return redis.error_reply('NOPERM the script may not use fcall')"
    const set = new ScriptSet(captureBullmqScripts(), `${redis.prefix}e`, (file) =>
      file.startsWith('verbs/') ? text : 'return {}',
    )
    onTestFinished(async () => {
      await redis
        .client()
        .call('FUNCTION', 'DELETE', set.library.name)
        .catch(() => {})
    })
    const client = redis.client()
    set.define(client)
    const sent = sentBy(client)
    await expect(reading(client, set)).rejects.toThrow('NOPERM the script')
    expect(sent).not.toContain('evalsha')
  })
})
