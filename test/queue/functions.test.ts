import type { Redis } from 'ioredis'
import { Redis as Redis5 } from 'ioredis5'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { captureBullmqScripts } from '../../src/redis/bullmq-scripts.ts'
import { deleteLibrary } from '../../src/redis/libraries.ts'
import { ScriptSet } from '../../src/redis/scripts.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
let sets = 0
const READ = "return { 'read', KEYS[1], #KEYS, ARGV[1] }"

/** A set of scripts that are all this text, in a library that no other set has. */
function ownSet(text = READ): ScriptSet {
  sets += 1
  const verb = `local set = "${redis.prefix} ${sets}"\n${text}`
  const set = new ScriptSet(captureBullmqScripts(), `${redis.prefix}${sets}`, (file) =>
    file.startsWith('verbs/') ? verb : 'return {}',
  )
  onTestFinished(async () => void (await deleteLibrary(redis.client(), set.library.name)))
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

type Commands = Readonly<Record<string, (...args: unknown[]) => Promise<unknown>>>

const calling = async (client: object, set: ScriptSet, script: string, ...args: unknown[]): Promise<unknown> =>
  (client as Commands)[set.command(script).name]?.(...args)
const reading = (client: object, set: ScriptSet, value = 'x') =>
  calling(client, set, 'view', `${redis.prefix}:q`, value)

const REPLY = ['read', `${redis.prefix}:q`, 1, 'x']

test('a library is loaded when its first function is called, once for all clients', async () => {
  const set = ownSet()
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
  const set = ownSet()
  const client = redis.client()
  set.define(client)
  const sent = sentBy(client)
  await Promise.all([reading(client, set), reading(client, set), reading(client, set)])
  expect(sent.filter((name) => name === 'function load')).toHaveLength(1)
})

describe('calls keep their order', () => {
  const PUSH = "redis.call('RPUSH', KEYS[1], ARGV[1]) return 1"

  /** A client that pushes numbers, from 1 on. */
  async function pushing(key: string) {
    const set = ownSet(PUSH)
    const client = redis.client()
    set.define(client)
    await client.ping()
    const calls: Promise<unknown>[] = []
    const push = () => void calls.push(calling(client, set, 'give-back', `${redis.prefix}:${key}`, calls.length + 1))
    const order = async () => {
      await Promise.all(calls)
      return client.lrange(`${redis.prefix}:${key}`, 0, -1)
    }
    return { client, push, order }
  }

  test('while the library is loaded, and right behind that', async () => {
    const { client, push, order } = await pushing('loaded')
    const pushed = new Promise<void>((resolve) => {
      const { sendCommand } = client
      client.sendCommand = function (this: Redis, command, ...rest) {
        const reply = sendCommand.call(this, command, ...rest)
        if (!/^function$/i.test((command as { name: string }).name)) return reply
        client.sendCommand = sendCommand
        setImmediate(push)
        void (reply as Promise<unknown>).then(async () => {
          for (let ticks = 0; ticks < 10; ticks++) await push()
          resolve()
        })
        return reply
      } as typeof sendCommand
    })
    push()
    push()
    await pushed
    expect(await order()).toEqual(Array.from({ length: 13 }, (_, i) => `${i + 1}`))
  })

  test.each([
    ['the library is refused', 'function', "NOPERM this user has no permissions to run the 'function|load' command", 1],
    ['functions are refused one by one', 'fcall', "ERR unknown command 'FCALL', with args beginning with: ", 2],
    ['one is loaded while others are told that there is none', 'fcall', 'ERR Function not found', 2],
  ])('where %s', async (what, refused, message, before) => {
    vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    onTestFinished(() => void vi.restoreAllMocks())
    const { client, push, order } = await pushing(what)
    // Answered one by one, in their order.
    const held: (() => void)[] = []
    let refusals = before
    const { sendCommand } = client
    client.sendCommand = function (this: Redis, command, ...rest) {
      const { name, promise, resolve, reject } = command as unknown as Record<
        'resolve' | 'reject',
        (value: unknown) => void
      > & {
        readonly name: string
        readonly promise: Promise<unknown>
      }
      if (name === refused && refusals-- > 0) held.push(() => reject(new Error(message)))
      else if (name === 'ping') held.push(() => resolve('PONG'))
      else if (name === 'function') held.push(() => void sendCommand.call(this, command, ...rest))
      else return sendCommand.call(this, command, ...rest)
      return promise
    } as typeof sendCommand
    for (let i = 0; i < before; i++) push()
    await vi.waitFor(() => expect(held).toHaveLength(before))
    if (refused === 'function') push()
    for (let calls = 0; held.length > 0; calls++) {
      held.shift()?.()
      await new Promise(setImmediate)
      if (calls < 5) push()
    }
    const expected = (await order()).toSorted((one, other) => Number(one) - Number(other))
    expect(await order()).toEqual(expected)
    expect(expected.length).toBeGreaterThan(2)
  })
})

test('one that is deleted is loaded again', async () => {
  const set = ownSet()
  const client = redis.client()
  set.define(client)
  await reading(client, set)
  await client.call('FUNCTION', 'DELETE', set.library.name)
  expect(await reading(client, set)).toEqual(REPLY)
})

test('a view that has to end an override goes as a text, and only then', async () => {
  const text = "if ARGV[1] == 'x' then redis.call('DEL', KEYS[1]) end return { 'read', KEYS[1], 1, ARGV[1] }"
  const set = ownSet(text)
  const client = redis.client()
  set.define(client)
  await client.ping()
  expect(await reading(client, set)).toEqual(REPLY)
  const sent = sentBy(client)
  await reading(client, set, 'y')
  await reading(client, set)
  expect(sent).toEqual(['fcall', 'fcall', 'evalsha'])
})

test("functions: 'never' sends texts, and composes no library", async () => {
  const set = ownSet()
  const client = redis.client()
  const composed = vi.spyOn(ScriptSet.prototype, 'library', 'get')
  onTestFinished(() => composed.mockRestore())
  set.define(client, 'never')
  const sent = sentBy(client)
  expect(await reading(client, set)).toEqual(REPLY)
  expect(sent).not.toContain('fcall')
  expect(composed).not.toHaveBeenCalled()
  set.define(redis.client())
  expect(composed).toHaveBeenCalled()
})

test('the names of libraries and functions are those of their texts', async () => {
  const [one, other] = [ownSet(), ownSet()]
  expect(one.library.name).toMatch(/^sluice_[\da-f]{12}$/)
  expect(one.library.name).not.toBe(other.library.name)
  expect(one.functionOf('find-new')).toBe(`${one.library.name}_find_new`)
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
      const set = ownSet()
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

  test('as another library has its name, texts are sent', async () => {
    const set = ownSet()
    const { name } = set.library
    const client = redis.client()
    await client.call('FUNCTION', 'LOAD', `#!lua name=${name}\nredis.register_function('${name}_x', function() end)`)
    set.define(client)
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    onTestFinished(() => warned.mockRestore())
    expect(await reading(client, set)).toEqual(REPLY)
    const sent = sentBy(client)
    expect(await reading(client, set)).toEqual(REPLY)
    expect(sent).toEqual(['evalsha'])
  })

  test('errors of a script itself are no refusals', async () => {
    const text = "return redis.error_reply('NOPERM the script may not use fcall')"
    const set = ownSet(text)
    const client = redis.client()
    set.define(client)
    const sent = sentBy(client)
    await expect(reading(client, set)).rejects.toThrow('NOPERM the script')
    expect(sent).not.toContain('evalsha')
  })
})
