import { expect, test, vi } from 'vitest'
import { combine, createLimiter, type OnError } from '../../../../src/limits/index.ts'
import { takeAway, throughProxy } from '../../../../test/limits/support/lost-redis.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { rateLimit } from '../../src/limits/rate-limit.ts'
import { call } from '../adapters/support/callers.ts'
import { KINDS, serve } from '../adapters/support/servers.ts'

const redis = useRedis(import.meta.url)
const key = () => 'joe'

async function limits(name: string, onError: OnError) {
  const link = await throughProxy(redis)
  const options = { prefix: redis.prefix, rate: '1/h', onError, timeoutMs: 50 }
  const [one, other] = ['one', 'other'].map((part) =>
    createLimiter(link.client, { ...options, name: `${name}-${part}` }),
  )
  const both = combine([one, other].filter((limit) => limit !== undefined))
  return {
    link,
    forms: {
      one: { limit: one ?? both, key },
      both: { limit: both, key },
      queue: { limit: one ?? both, key, burstQueue: { maxWaiting: 3 } },
    },
  }
}

test.each(KINDS)('%s: without Redis the answer is 503, never 429, and nobody is asked behind it', async (kind) => {
  const { link, forms } = await limits(`away-${kind}`, 'throw')
  const behind = vi.fn(() => 'passed')
  const onLimit = vi.fn()
  await takeAway(link)
  for (const options of Object.values(forms)) {
    const said = await call(await serve(kind, rateLimit({ ...options, onLimit }), behind))
    expect(said).toMatchObject({
      status: 503,
      headers: { 'content-type': 'application/problem+json', 'retry-after': expect.stringMatching(/^[1-9]\d*$/) },
    })
    expect(JSON.parse(said.body).type).toMatch(/#temporary-reduced-capacity$/)
    expect(said.headers).not.toHaveProperty('ratelimit')
  }
  expect(behind).not.toHaveBeenCalled()
  expect(onLimit).not.toHaveBeenCalled()
})

test.each([
  ['allow', 200],
  ['deny', 503],
] as const)("onError '%s' without Redis is %d, and says nothing of what is left", async (onError, status) => {
  const { link, forms } = await limits(`on-error-${onError}`, onError)
  // So that its rule is known: an answer that took longer than timeoutMs does not tell it.
  const origin = await serve('node', rateLimit(forms.both))
  await expect.poll(async () => (await call(origin)).headers).toHaveProperty('ratelimit')
  await takeAway(link)
  for (const options of Object.values(forms)) {
    const said = await call(await serve('node', rateLimit(options)))
    expect(said.status).toBe(status)
    expect(said.headers).not.toHaveProperty('ratelimit')
  }
})
