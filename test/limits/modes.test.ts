import { expect, onTestFinished, test } from 'vitest'
import { combine } from '../../src/limits/index.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import type { Message } from './programs/limited.ts'
import { PATIENT, useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const { client, limiter } = useLimiters(redis)

test('a mode that is set holds for the limiters of every process at once; null goes back to what the code says', async () => {
  const options = { name: 'everywhere', rate: '1/h' }
  const here = limiter(options)
  const script = new URL('./programs/limited.ts', import.meta.url)
  const there = processes.fork<Message>(script, {
    args: [redis.url, JSON.stringify({ prefix: redis.prefix, ...options })],
  })
  onTestFinished(() => there.kill().then(() => {}))
  await there.waitFor('ready')
  const takes = async () => {
    const before = there.messages.length
    there.send({ do: 'take', key: 'joe' })
    const { allowed, errors } = await there.waitFor('took', (message) => there.messages.indexOf(message) >= before)
    expect(errors).toEqual([])
    return [(await here.take('joe')).allowed, allowed === 1]
  }
  await here.take('joe')
  expect(await takes()).toEqual([false, false])
  for (const mode of ['shadow', 'off'] as const) {
    await here.setMode(mode)
    expect([mode, await takes()]).toEqual([mode, [true, true]])
    await here.setMode('enforce')
    expect(await takes()).toEqual([false, false])
  }
  await here.setMode('off')
  await here.setMode(null)
  expect(await takes()).toEqual([false, false])
})

test('null goes back to a mode of the code, and enforce overrides that', async () => {
  const api = limiter({ name: 'of-code', rate: '1/h', mode: 'off' })
  expect((await api.take()).allowed && (await api.take()).allowed).toBe(true)
  await api.setMode('enforce')
  expect([(await api.take()).allowed, (await api.take()).allowed]).toEqual([true, false])
  await api.setMode(null)
  expect((await api.take()).allowed).toBe(true)
})

test('in shadow everything passes; what would have been refused is told, and charges nothing', async () => {
  const api = limiter({ name: 'shadow', rate: '2/h', burst: 2, mode: 'shadow' })
  expect(await api.take('joe')).toMatchObject({ allowed: true, remaining: 1 })
  expect(await api.take('joe')).not.toHaveProperty('wouldRefuse')
  const { resetAt } = await api.peek('joe')
  for (let i = 0; i < 3; i++) {
    expect(await api.take('joe')).toMatchObject({
      allowed: true,
      wouldRefuse: true,
      retryAfterMs: 0,
      remaining: 0,
      resetAt,
    })
  }
  await api.setMode('enforce')
  expect(await api.take('joe')).toMatchObject({ allowed: false, resetAt })
})

test('off charges nothing', async () => {
  const api = limiter({ name: 'off', rate: '2/h', burst: 2, mode: 'off' })
  for (let i = 0; i < 5; i++) expect(await api.take('joe')).toMatchObject({ allowed: true, remaining: 2 })
  await api.penalty('joe', 2)
  expect((await api.wait('joe', { timeoutMs: 0 })).allowed).toBe(true)
  expect(await api.peek('joe')).not.toHaveProperty('wouldRefuse')
  await api.setMode('enforce')
  expect((await api.peek('joe')).remaining).toBe(2)
})

test('nobody waits in shadow', async () => {
  const api = limiter({ name: 'no-wait', rate: '1/h', mode: 'shadow' })
  const answers = [await api.wait('joe', { timeoutMs: 0 }), await api.wait('joe', { timeoutMs: 0 })]
  expect(answers.map(({ allowed }) => allowed)).toEqual([true, true])
})

test('a block holds in shadow and not in off, and is lifted by 0 and by reset', async () => {
  const api = limiter({ name: 'block', rate: '9/s', burst: 9, mode: 'shadow' })
  await api.block('joe', 60_000)
  const refused = await api.take('joe')
  expect(refused).toMatchObject({ allowed: false, remaining: 9 })
  expect(refused.retryAfterMs).toBeGreaterThan(50_000)
  expect((await api.take('ann')).allowed).toBe(true)
  // A later end is never brought forward.
  await api.block('joe', 1)
  expect((await api.take('joe')).retryAfterMs).toBeGreaterThan(50_000)
  await api.setMode('off')
  expect((await api.take('joe')).allowed).toBe(true)
  await api.setMode('enforce')
  expect((await api.take('joe')).allowed).toBe(false)
  await api.block('joe', 0)
  expect((await api.take('joe')).allowed).toBe(true)
  await api.block('joe', 60_000)
  await api.reset('joe')
  expect(await api.take('joe')).toMatchObject({ allowed: true, remaining: 8 })
})

test('combined, a limit in shadow lets pass, and its say is told', async () => {
  const shadow = limiter({ name: 'in-shadow', rate: '1/h', mode: 'shadow' })
  const enforced = limiter({ name: 'enforced', rate: '3/h', burst: 3 })
  const api = combine([shadow, enforced])
  expect((await api.take()).answers.map(({ wouldRefuse }) => wouldRefuse)).toEqual([undefined, undefined])
  expect(await api.take()).toMatchObject({
    allowed: true,
    answers: [{ allowed: true, wouldRefuse: true }, { remaining: 1 }],
  })
  await shadow.setMode('enforce')
  expect(await api.take()).toMatchObject({
    allowed: false,
    policy: 'in-shadow',
    answers: [{}, { allowed: true, remaining: 1 }],
  })
})

test('combined, a limit in shadow never binds: Retry-After is that of the one that refused', async () => {
  const shadow = limiter({ name: 'slow-shadow', rate: '1/day', mode: 'shadow' })
  const enforced = limiter({ name: 'quick', rate: '1/min' })
  const api = combine([shadow, enforced])
  await api.take()
  const refused = await api.take()
  expect(refused).toMatchObject({ allowed: false, policy: 'quick' })
  expect(refused.retryAfterMs).toBeLessThanOrEqual(60_000)
})

test('blocked in shadow, Retry-After is the end of the block', async () => {
  const api = limiter({ name: 'short-block', rate: '1/day', mode: 'shadow' })
  await api.take('joe')
  await api.block('joe', 60_000)
  const refused = await api.take('joe')
  expect(refused.allowed).toBe(false)
  expect(refused.retryAfterMs).toBeLessThanOrEqual(60_000)
})

test('a mode needs no take before it, and is not part of the definition', async () => {
  const options = { name: 'first', rate: '1/h' }
  await limiter(options).setMode('shadow')
  expect((await limiter({ ...options, mode: 'off', ...PATIENT }).take()).allowed).toBe(true)
  expect((await limiter(options).take()).allowed).toBe(true)
  expect(await client.get(`${redis.prefix}:limit:{first}:switch`)).toMatch(/^shadow /)
})
