import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { InvalidInputError } from '../../../src/errors.ts'
import { giveBack, takeAway, throughProxy, until } from '../../../test/limits/support/lost-redis.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { type ModeRedis, ModeSwitch, type ModeSwitchOptions, ModesUnavailableError } from '../src/mode-switch.ts'
import { requestsInFlight } from '../src/shedding/requests-in-flight.ts'
import { HeldClock, isRefused, requestOf } from './shedding/support.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const ops = { by: 'ops', reason: 'incident 7' }
let prefixes = 0

/** A prefix of its own for a test. */
function newPrefix(): string {
  prefixes += 1
  return `${redis.prefix}:${prefixes}`
}

/** A client that counts how often it is asked for modes. */
function counted(over: Redis): { redis: ModeRedis; asked: () => number } {
  let count = 0
  const hgetall = (key: string) => {
    count += 1
    return over.hgetall(key)
  }
  const { hset, hdel } = { hset: over.hset.bind(over), hdel: over.hdel.bind(over) }
  return {
    redis: {
      hgetall,
      hset,
      hdel,
      get status() {
        return over.status
      },
    },
    asked: () => count,
  }
}

function switchOf(prefix: string, options: ModeSwitchOptions = {}, over: ModeRedis = client) {
  const clock = new HeldClock()
  const errors: Error[] = []
  const onError = (error: Error) => errors.push(error)
  return { modes: new ModeSwitch(over, { prefix, now: clock.now, onError, ...options }), clock, errors }
}

test('a mode that is set holds at once here, and elsewhere after the next refresh; null goes back', async () => {
  const prefix = newPrefix()
  const here = switchOf(prefix)
  const there = switchOf(prefix, {}, redis.client())
  expect([await here.modes.modeOf('shedder'), await there.modes.modeOf('shedder')]).toEqual([undefined, undefined])
  for (const mode of ['shadow', 'off', 'enforce', null] as const) {
    const before = there.modes.modeOf('shedder')
    await here.modes.setMode('shedder', mode, ops)
    expect(here.modes.modeOf('shedder')).toBe(mode ?? undefined)
    there.clock.pass(999)
    expect(there.modes.modeOf('shedder')).toBe(before)
    there.clock.pass(1001)
    expect(await there.modes.modeOf('shedder')).toBe(mode ?? undefined)
    expect(there.modes.modeOf('another')).toBeUndefined()
  }
  expect(await client.exists(`${prefix}:modes`)).toBe(0)
})

test('while requests come nobody waits: the refresh is made behind them', async () => {
  const prefix = newPrefix()
  const { modes, clock } = switchOf(prefix)
  await modes.modeOf('shedder')
  await switchOf(prefix).modes.setMode('shedder', 'off', ops)
  clock.pass(1000)
  expect(modes.modeOf('shedder')).toBeUndefined()
  // The command of the refresh was sent before this one, over the same connection.
  await client.ping()
  await new Promise((resolve) => setImmediate(resolve))
  expect(modes.modeOf('shedder')).toBe('off')
})

test('Redis is asked once at a time, and once in a refresh', async () => {
  const { redis: counting, asked } = counted(client)
  const { modes, clock } = switchOf(newPrefix(), {}, counting)
  await modes.modeOf('shedder')
  for (let i = 0; i < 4; i++) {
    clock.pass(2000)
    await Promise.all(Array.from({ length: 50 }, () => modes.modeOf('shedder')))
    for (let n = 0; n < 50; n++) modes.modeOf('shedder')
  }
  expect(asked()).toBe(5)
})

test('it is told who set a mode, when and why', async () => {
  const prefix = newPrefix()
  const { modes } = switchOf(prefix)
  const from = Date.now()
  await modes.setMode('shedder', 'shadow', ops)
  await modes.setMode('other', 'off', { by: 'joe', reason: 'test' })
  await client.hset(modes.key, { foreign: 'shadow', 'no mode': '{"mode":"dark"}' })
  const settings = await modes.settings()
  expect([...settings.keys()].sort()).toEqual(['other', 'shedder'])
  expect(settings.get('shedder')).toEqual({ mode: 'shadow', ...ops, at: expect.any(Date) })
  expect(settings.get('shedder')?.at.getTime()).toBeGreaterThanOrEqual(from)
})

test('an answer that is older than a change does not undo it', async () => {
  const { modes } = switchOf(newPrefix())
  const reading = modes.modeOf('shedder')
  const setting = modes.setMode('shedder', 'off', ops)
  await Promise.all([reading, setting])
  expect(modes.modeOf('shedder')).toBe('off')
})

test('without Redis the last known modes hold, nobody waits for long, and nothing is thrown', async () => {
  const link = await throughProxy(redis, { maxRetriesPerRequest: null })
  const prefix = newPrefix()
  const { redis: counting, asked } = counted(link.client)
  const { modes, clock, errors } = switchOf(prefix, {}, counting)
  await modes.setMode('shedder', 'off', ops)
  expect(await modes.modeOf('shedder')).toBe('off')
  await takeAway(link)
  for (let i = 1; i <= 5; i++) {
    clock.pass(5000)
    expect(await modes.modeOf('shedder')).toBe('off')
    expect(modes.modeOf('shedder')).toBe('off')
    expect(errors).toHaveLength(i)
  }
  // One before, and one that waits for the connection.
  expect(asked()).toBe(2)
  await switchOf(prefix).modes.setMode('shedder', 'shadow', ops)
  await giveBack(link)
  clock.pass(5000)
  expect(await modes.modeOf('shedder')).toBe('shadow')
})

test('a Redis that does not answer is waited for once, and not again before it does', async () => {
  const link = await throughProxy(redis, { maxRetriesPerRequest: null })
  const { modes, clock, errors } = switchOf(newPrefix(), { timeoutMs: 3000 }, link.client)
  link.proxy.blackhole()
  expect(await modes.modeOf('shedder')).toBeUndefined()
  expect(errors.map(({ message }) => message)).toEqual(['Redis did not answer within 3000 ms'])
  clock.pass(500)
  expect(modes.modeOf('shedder')).toBeUndefined()
  expect(errors).toHaveLength(1)
  const ready = until(link.client, 'ready')
  link.proxy.restore()
  await ready
  clock.pass(2000)
  await modes.modeOf('shedder')
  expect(errors).toHaveLength(1)
})

test('setMode says so where Redis is gone', async () => {
  const gone = redis.client({ lazyConnect: true })
  gone.disconnect()
  const { modes } = switchOf(newPrefix(), {}, gone)
  await expect(modes.setMode('shedder', 'off', ops)).rejects.toThrow(ModesUnavailableError)
  await expect(modes.settings()).rejects.toThrow('Modes are unavailable: Connection is closed.')
})

test('the mode of a shedder is that of the switch, else its own', async () => {
  const { modes } = switchOf(newPrefix())
  const shedder = requestsInFlight({ max: 1, classes: [{ name: 'all' }], name: 'shedder', mode: 'shadow', modes })
  const enters = async () => isRefused(await shedder.enter(requestOf()))
  expect([await enters(), await enters()]).toEqual([false, false])
  await modes.setMode('shedder', 'enforce', ops)
  expect(await enters()).toBe(true)
  await modes.setMode('shedder', 'off', ops)
  expect(await enters()).toBe(false)
  await modes.setMode('shedder', null, ops)
  expect(await enters()).toBe(false)
  expect(shedder.counts()).toEqual({ all: { admitted: 3, refused: 1, wouldRefuse: 2 } })
})

test.each<[unknown[], string]>([
  [['', 'off', ops], 'a mode needs a name; got '],
  [['shedder', 'dark', ops], `mode must be 'enforce', 'shadow', 'off' or null; got "dark"`],
  [['shedder', undefined, ops], `mode must be 'enforce', 'shadow', 'off' or null; got undefined`],
  [['shedder', 'off'], 'setMode needs { by, reason }: who changes the mode, and why'],
  [['shedder', 'off', { by: 'ops' }], 'setMode needs { by, reason }'],
])('setMode(%j) is refused', async (call, message) => {
  const { modes } = switchOf(newPrefix())
  const set = () => modes.setMode(...(call as Parameters<ModeSwitch['setMode']>))
  await expect(set()).rejects.toThrow(InvalidInputError)
  await expect(set()).rejects.toThrow(message)
})

test.each([
  [{ prefix: 'a:' }, 'prefix must be a string without a colon at its end; got a:'],
  [{ refreshMs: 0 }, 'refreshMs must be a number of ms > 0; got 0'],
  [{ timeoutMs: Number.NaN }, 'timeoutMs must be a number of ms > 0; got NaN'],
])('options %j are refused', (options, message) => {
  expect(() => new ModeSwitch(client, options)).toThrow(InvalidInputError)
  expect(() => new ModeSwitch(client, options)).toThrow(message)
})

test('a switch needs a client', () => {
  expect(() => new ModeSwitch(undefined as never)).toThrow('modes need an ioredis client; got undefined')
})
