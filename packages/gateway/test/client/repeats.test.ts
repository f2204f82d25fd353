import { describe, expect, test } from 'vitest'
import { LimitExceededError } from '../../../../src/errors.ts'
import { politeClient, type Script } from './scripted-server.ts'

const URL = 'https://api.example.com/things'
const MINUTE = 60_000

describe('when a refused request is sent again', () => {
  test.each<[string, Script, number]>([
    ['Retry-After in seconds', { status: 429, headers: { 'retry-after': '7' } }, 7000],
    ['Retry-After of a 503', { status: 503, headers: { 'retry-after': '7' } }, 7000],
    ['Retry-After of a 502', { status: 502, headers: { 'retry-after': '7' } }, 7000],
    ['ms before seconds', { status: 429, headers: { 'retry-after-ms': '1500', 'retry-after': '7' } }, 1500],
    ['Retry-After before t', { status: 429, headers: { 'retry-after': '2', ratelimit: '"a";r=0;t=50' } }, 2000],
    [
      'Retry-After before a reset',
      { status: 429, headers: { 'retry-after': '2', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '50' } },
      2000,
    ],
    ['t', { status: 429, headers: { ratelimit: '"a";r=0;t=5' } }, 5000],
    ['the reset of X-RateLimit', { status: 429, headers: { 'x-ratelimit-reset': '9' } }, 9000],
    [
      'GitHub: 403 with nothing left',
      {
        status: 403,
        headers: { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '9', 'x-ratelimit-resource': 'core' },
      },
      9000,
    ],
  ])('%s', async (_, refusal, givenMs) => {
    const { fetch, clock, starts } = politeClient((_, i) => (i === 0 ? refusal : {}), { baseMs: 1000 })
    clock.chance = 0.25
    const call = fetch(URL)
    await clock.advance(10 * MINUTE)
    // Jitter comes on top.
    expect(starts()).toEqual([0, givenMs + 250])
    expect((await call).status).toBe(200)
  })

  test('without a time: exponential backoff with full jitter, capped', async () => {
    const { fetch, clock, starts } = politeClient(() => ({ status: 500 }), { baseMs: 100, capMs: 350 })
    clock.chance = 0.5
    const call = fetch(URL)
    await clock.advance(MINUTE)
    expect(starts()).toEqual([0, 50, 150, 325, 500])
    const last = await call
    expect(last.status).toBe(500)
    expect(await last.text()).toBe('here')
  })
})

describe('what is sent again', () => {
  const stream = () => new Blob(['a']).stream()
  test.each<[string, Script, RequestInit & { duplex?: 'half' }, number]>([
    ['GET after a lost connection', { error: new TypeError('fetch failed') }, {}, 3],
    ['PUT after 500', { status: 500 }, { method: 'PUT', body: 'a' }, 3],
    ['put in lower case', { status: 500 }, { method: 'put', body: 'a' }, 3],
    ['not POST after 500', { status: 500 }, { method: 'POST', body: 'a' }, 1],
    ['not POST after a lost connection', { error: new TypeError('fetch failed') }, { method: 'POST' }, 1],
    [
      'POST after 500 with an Idempotency-Key',
      { status: 500 },
      { method: 'POST', headers: { 'idempotency-key': 'a' } },
      3,
    ],
    ['POST after 429', { status: 429, headers: { 'retry-after': '1' } }, { method: 'POST', body: 'a' }, 3],
    ['POST after 503 with a time', { status: 503, headers: { 'retry-after': '1' } }, { method: 'POST' }, 3],
    ['not POST after 503 without one', { status: 503 }, { method: 'POST' }, 1],
    ['not a stream', { status: 429 }, { method: 'PUT', body: stream(), duplex: 'half' }, 1],
    ['not 404', { status: 404, headers: { 'retry-after': '1' } }, {}, 1],
    ['not 403 of a permission', { status: 403 }, {}, 1],
  ])('%s', async (_, script, init, times) => {
    const { fetch, clock, sent } = politeClient(() => script, { attempts: 3 })
    const call = fetch(URL, init).catch((error: unknown) => error)
    await clock.advance(MINUTE)
    expect(sent.length).toBe(times)
    expect(sent.every(({ body }) => body === init.body)).toBe(true)
    const result = await call
    if (script.error) expect(result).toBe(script.error)
    else expect((result as Response).status).toBe(script.status)
    expect(clock.timers).toBe(0)
  })

  test('not the body of a Request, as it is a stream; a Request without one is', async () => {
    const { fetch, clock, sent } = politeClient(() => ({ status: 429 }), { attempts: 2 })
    void fetch(new Request(URL, { method: 'PUT', body: 'a' }))
    await clock.advance(MINUTE)
    expect(sent.length).toBe(1)
    void fetch(new Request(URL))
    await clock.advance(MINUTE)
    expect(sent.length).toBe(3)
  })

  test('when everything fails, 100 repeats, then 10 a second and 20 % of the calls', async () => {
    const { fetch, clock, sent } = politeClient(() => ({ status: 500 }), { attempts: 2 })
    await Promise.all([...Array.from({ length: 200 }, () => fetch(URL)), clock.advance(0)])
    expect(sent.length).toBe(300)
    await Promise.all([...Array.from({ length: 50 }, () => fetch(URL)), clock.advance(0)])
    expect(sent.length).toBe(360)
    await clock.advance(1000)
    await Promise.all([...Array.from({ length: 50 }, () => fetch(URL)), clock.advance(0)])
    expect(sent.length).toBe(430)
  })
})

describe('how long a call may take', () => {
  test('a refusal comes back at once where its time would be too late', async () => {
    const refusal = { status: 429, headers: { 'retry-after': '60' }, body: 'too many' }
    const { fetch, clock, sent } = politeClient(() => refusal, { timeoutMs: 59_999 })
    const call = fetch(URL)
    await clock.advance(0)
    expect(await (await call).text()).toBe('too many')
    expect(sent.length).toBe(1)
    expect(clock.timers).toBe(0)
  })

  test('one that could not even start in time is told when it could', async () => {
    const { fetch, clock, sent } = politeClient(() => ({ status: 429, headers: { 'retry-after': '60' } }), {
      timeoutMs: 10_000,
    })
    await Promise.all([fetch(URL), clock.advance(0)])
    const error = await fetch(URL).catch((error: unknown) => error)
    expect(error).toBeInstanceOf(LimitExceededError)
    expect(error).toMatchObject({ limitName: 'https://api.example.com', retryAfterMs: 60_000 })
    expect(sent.length).toBe(1)
  })

  test('an answer that does not come in time is a TimeoutError, as with AbortSignal.timeout', async () => {
    const { fetch, clock, sent } = politeClient(() => ({ afterMs: MINUTE }), { timeoutMs: 1000 })
    const call = fetch(URL).catch((error: unknown) => error)
    await clock.advance(1000)
    expect(await call).toMatchObject({ name: 'TimeoutError' })
    expect(sent.length).toBe(1)
    expect(clock.timers).toBe(0)
  })

  test('that time is over once the headers came: nothing ends the body', async () => {
    const { fetch, clock } = politeClient(() => ({ afterMs: 900 }), { timeoutMs: 1000 })
    const call = fetch(URL)
    await clock.advance(900)
    const response = await call
    expect(clock.timers).toBe(0)
    await clock.advance(1000)
    expect(await response.text()).toBe('here')
  })

  test('an aborted wait ends at once with its reason, and leaves no timer', async () => {
    const { fetch, clock, sent } = politeClient(() => ({ status: 429, headers: { 'retry-after': '60' } }))
    const stop = new AbortController()
    const call = fetch(URL, { signal: stop.signal }).catch((error: unknown) => error)
    const waiting = fetch(new Request(URL, { signal: stop.signal })).catch((error: unknown) => error)
    await clock.advance(1000)
    expect(clock.timers).toBeGreaterThan(0)
    const reason = new Error('enough')
    stop.abort(reason)
    expect(await call).toBe(reason)
    expect(await waiting).toBe(reason)
    expect(clock.timers).toBe(0)
    expect(await fetch(URL, { signal: stop.signal }).catch((error: unknown) => error)).toBe(reason)
    expect(sent.length).toBe(2)
  })

  test('a signal that aborts a request that is under way ends the call', async () => {
    const { fetch, clock, sent } = politeClient(() => ({ afterMs: MINUTE }))
    const stop = new AbortController()
    const call = fetch(URL, { signal: stop.signal }).catch((error: unknown) => error)
    await clock.advance(10)
    stop.abort()
    expect(await call).toMatchObject({ name: 'AbortError' })
    await clock.advance(MINUTE)
    expect(sent.length).toBe(1)
    expect(clock.timers).toBe(0)
  })
})

test('what is no URL, header or signal throws as fetch does, and nothing is sent', async () => {
  const { fetch, sent } = politeClient(() => ({}))
  await expect(fetch('/relative')).rejects.toThrow(TypeError)
  await expect(fetch(URL, { headers: { 'not a name': 'a' } })).rejects.toThrow(TypeError)
  expect(sent).toEqual([])
})
