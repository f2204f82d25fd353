import { afterAll, describe, expect, onTestFinished, test } from 'vitest'
import { createLimiter, type LimiterOptions } from '../../../src/limits/index.ts'
import { PATIENT } from '../../../test/limits/support/limiters.ts'
import { startProxy } from '../../../test/support/proxy.ts'
import { type TestRedis, useRedis } from '../../../test/support/redis.ts'
import { jsonHere, runHere } from './run-here.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const under = (options: Omit<LimiterOptions, 'prefix'>) =>
  createLimiter(client, { ...options, ...PATIENT, prefix: redis.prefix })
const run = (command: string, ...args: string[]) =>
  runHere(redis, ['limits', command, ...args, '--limits-prefix', redis.prefix])
const json = (command: string, ...args: string[]) =>
  jsonHere(redis, ['limits', command, ...args, '--limits-prefix', redis.prefix])

const logins = under({ name: 'logins', algorithm: 'sliding-window-log', rate: '2/h' })
const spread = under({ name: 'spread', rate: '5/min', burst: 5, spread: 'key', version: 3 })
const plans = under({
  ...{ name: 'plans', rate: '1/h', tiers: { pro: { rate: '10/h', burst: 10 } } },
  tierOf: () => 'pro',
})
afterAll(() => client.quit())

describe('limits list', () => {
  test('has each declared limit once, whatever keys it has', async () => {
    await Promise.all([logins.take('a'), logins.take(['b', 'c']), spread.take('a'), plans.take('a')])
    await spread.setMode('shadow')
    const { limits } = await json('list')
    expect(limits.map(({ name, version, mode }: never) => [name, version, mode])).toEqual([
      ['logins', undefined, undefined],
      ['plans', undefined, undefined],
      ['spread', 3, 'shadow'],
    ])
    const { stdout } = await run('list')
    expect(stdout).toMatch(/^logins +2\/h \(sliding-window-log\) +as declared +\S+:\d+$/m)
    expect(stdout).toMatch(/^plans +1\/h \(gcra\), 1 tier +/m)
    expect(stdout).toMatch(/^spread +5\/min \(gcra\) +shadow +/m)
    await spread.setMode(null)
  })

  test('looks under the prefix alone', async () => {
    const { stdout } = await runHere(redis, ['limits', 'list', '--limits-prefix', `${redis.prefix}*`])
    expect(stdout).toContain('no limits under prefix')
  })
})

describe('limits show', () => {
  test('what it allows, and what a key has left, without charging it', async () => {
    await Promise.all([1, 2].map(() => logins.take(['203.0.113.7', 'alice'])))
    expect((await run('show', 'logins')).stdout).toMatch(/^logins\nalgorithm +sliding-window-log\nrate +2\/h\n/)
    const used = await json('show', 'logins', '203.0.113.7', 'alice')
    expect(used).toMatchObject({ limit: 2, key: ['203.0.113.7', 'alice'], allowed: false, remaining: 0 })
    expect((await run('show', 'logins', '203.0.113.7', 'alice')).stdout).toMatch(/refused, retry in (59|1h)/)
    expect((await json('show', 'logins', 'bob')).remaining).toBe(2)
    expect((await logins.peek('bob')).remaining).toBe(2)
  })

  test('what calls without a key share, which is no key', async () => {
    await plans.take()
    expect((await json('show', 'plans', '--keyless', '--tier', 'pro')).remaining).toBe(9)
    expect((await run('show', 'plans', '--keyless')).stdout).toMatch(/^key +\(no key\)\n/)
    expect(await json('block', 'plans', '--keyless', '--tier', 'pro', '--for', '1h')).toMatchObject({ limit: 'plans' })
    expect((await plans.peek()).allowed).toBe(false)
    await run('reset', 'plans', '--keyless', '--tier', 'pro')
    expect((await plans.peek()).remaining).toBe(10)
    for (const args of [
      ['reset', 'plans'],
      ['reset', 'plans', 'a', '--keyless'],
    ]) {
      expect(await run(...(args as ['reset']))).toMatchObject({ code: 2, stderr: expect.stringContaining('--keyless') })
    }
  })

  test('a key of a tier', async () => {
    await plans.take('carol')
    expect((await json('show', 'plans', 'carol', '--tier', 'pro')).remaining).toBe(9)
    expect((await json('show', 'plans', 'carol')).remaining).toBe(1)
    expect(await run('show', 'plans', 'carol', '--tier', 'free')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has the tiers \'pro\'; got "free"'),
    })
  })

  test('a limit that no program has declared is not found, and not declared', async () => {
    for (const [command, ...args] of [['show'], ['reset', 'a'], ['block', 'a', '--for', '1m']] as const) {
      expect(await run(command, 'login', ...args)).toMatchObject({
        code: 4,
        stderr: expect.stringContaining('no limit "login"'),
      })
    }
    expect((await run('show', 'a:b')).code).toBe(2)
    expect((await json('list')).limits).toHaveLength(3)
  })
})

describe('limits block and reset', () => {
  test.each([
    ['logins', logins],
    ['spread', spread],
  ])('a key of %s is refused until it is reset', async (name, limiter) => {
    expect((await run('block', name, 'dave', '--for', '1h')).stdout).toBe(`${name}: dave is blocked for 1h\n`)
    expect((await limiter.take('dave')).allowed).toBe(false)
    const { blocked } = await json('show', name)
    expect(blocked.map(({ key }: never) => key)).toEqual(['dave'])
    expect((await run('show', name)).stdout).toMatch(/\nblocked key +until\ndave +\d{4}-\S+Z\n$/)
    expect((await run('reset', name, 'dave')).stdout).toBe(`${name}: dave is reset\n`)
    expect((await limiter.take('dave')).allowed).toBe(true)
    expect((await json('show', name)).blocked).toEqual([])
  })

  test('from a network far away, too', async () => {
    await logins.take('far')
    const proxy = await startProxy(redis.url)
    onTestFinished(() => proxy.stop())
    proxy.latency(250)
    const far = { ...redis, url: proxy.url, prefix: redis.prefix } as TestRedis
    const reset = ['limits', 'reset', 'logins', 'far', '--limits-prefix', redis.prefix]
    expect(await runHere(far, reset)).toMatchObject({ code: 0, stdout: 'logins: far is reset\n' })
  })

  test('a block needs its time', async () => {
    expect(await run('block', 'logins', 'dave')).toMatchObject({ code: 2 })
  })
})
