import { describe, expect, test } from 'vitest'
import { politeClient, type Script, type Sent } from './scripted-server.ts'

const HOST = 'https://api.example.com'
const MINUTE = 60_000

/** When each request to a path was sent. */
function startsOf(sent: readonly Sent[], path: string): number[] {
  return sent.filter(({ url }) => url === HOST + path).map(({ atMs }) => atMs)
}

/** A server whose `/slow…` paths are refused once, with the headers; all others are answered with the same fields. */
function refusingOnce(retryAfterS: number, headers: Readonly<Record<string, string>>, status = 429) {
  let isOver = false
  return ({ url }: Sent): Script => {
    if (isOver || !url.startsWith(`${HOST}/slow`)) return { headers: url.includes('/slow') ? headers : {} }
    isOver = true
    return { status, headers: { ...headers, 'retry-after': String(retryAfterS) } }
  }
}

describe('whom a refusal holds', () => {
  test.each<[string, Readonly<Record<string, string>>, number, boolean]>([
    ['without a bucket: the whole origin', {}, 429, true],
    ['Discord: the bucket', { 'x-ratelimit-bucket': 'abcd' }, 429, false],
    [
      'Discord: all, where the limit is global',
      { 'x-ratelimit-bucket': 'abcd', 'x-ratelimit-global': 'true' },
      429,
      true,
    ],
    ['GitHub: the resource', { 'x-ratelimit-resource': 'search' }, 429, false],
    ['RateLimit: the policy', { ratelimit: '"search";r=7' }, 429, false],
    ['an overloaded server: all', { 'x-ratelimit-resource': 'search' }, 503, true],
  ])('%s', async (_, headers, status, holdsOthers) => {
    const { fetch, clock, sent } = politeClient(refusingOnce(5, headers, status))
    void fetch(`${HOST}/slow`)
    await clock.advance(1000)
    void fetch(`${HOST}/slow`)
    void fetch(`${HOST}/other`)
    void fetch('https://elsewhere.example.com/')
    await clock.advance(MINUTE)
    expect(startsOf(sent, '/slow')).toEqual([0, 5000, 5000])
    expect(startsOf(sent, '/other')).toEqual([holdsOthers ? 5000 : 1000])
    expect(sent.find(({ url }) => url.startsWith('https://elsewhere'))?.atMs).toBe(1000)
  })

  test('paths that turned out to share a bucket wait together, and with them those that begin like one of them', async () => {
    const bucket = { 'x-ratelimit-bucket': 'abcd' }
    let isRefusing = false
    const { fetch, clock, sent } = politeClient(({ url }) => {
      if (url.includes('alone')) return {}
      return isRefusing && clock.nowMs() < 6000
        ? { status: 429, headers: { ...bucket, 'retry-after': '5' } }
        : { headers: bucket }
    })
    for (const path of ['/a/1', '/b/1', '/alone']) await Promise.all([fetch(HOST + path), clock.advance(0)])
    isRefusing = true
    void fetch(`${HOST}/a/1`)
    await clock.advance(1000)
    for (const path of ['/b/1', '/b/2?x=1', '/alone']) void fetch(HOST + path)
    await clock.advance(MINUTE)
    expect(startsOf(sent, '/a/1')).toEqual([0, 0, 5000])
    expect(startsOf(sent, '/b/1')).toEqual([0, 5000])
    expect(startsOf(sent, '/b/2?x=1')).toEqual([5000])
    expect(startsOf(sent, '/alone')).toEqual([0, 1000])
  })

  test('of several policies, those that are used up or violated', async () => {
    const headersOf = (left: number) => ({ ratelimit: `"burst";r=${left};t=5, "day";r=900;t=3600` })
    const { fetch, clock, sent } = politeClient(({ url }, i) => {
      if (url.endsWith('/day')) return { headers: { ratelimit: '"day";r=900;t=3600' } }
      return i === 1 ? { status: 429, headers: headersOf(0) } : { headers: headersOf(9) }
    })
    await Promise.all([fetch(`${HOST}/day`), clock.advance(0)])
    void fetch(`${HOST}/both`)
    await clock.advance(1000)
    void fetch(`${HOST}/day`)
    void fetch(`${HOST}/both`)
    await clock.advance(MINUTE)
    expect(startsOf(sent, '/day')).toEqual([0, 1000])
    expect(startsOf(sent, '/both')).toEqual([0, 5000, 5000])
  })
})

describe('after a pause', () => {
  test('one probes first, and every good answer lets one more be under way', async () => {
    const { fetch, clock, starts, waits } = politeClient((_, i) =>
      i === 0 ? { status: 429, headers: { 'retry-after': '5' } } : { afterMs: 100 },
    )
    void fetch(`${HOST}/0`)
    await clock.advance(1000)
    for (let i = 1; i < 8; i++) void fetch(`${HOST}/${i}`)
    await clock.advance(MINUTE)
    expect(starts()).toEqual([0, 5000, 5100, 5100, 5200, 5200, 5200, 5200, 5300])
    expect(waits[0]).toEqual({ waitMs: 5000, reason: 'pause', bucket: HOST, attempt: 2 })
    expect(waits[1]).toEqual({ waitMs: 4000, reason: 'pause', bucket: HOST, attempt: 1 })
    expect(waits.length).toBe(8)
  })

  test('a probe that is refused holds the others again; a lost one lets the next one probe', async () => {
    const scripts: Script[] = [
      { status: 429, headers: { 'retry-after': '5' } },
      { status: 429, headers: { 'retry-after': '5' }, afterMs: 100 },
      { error: new TypeError('fetch failed'), afterMs: 100 },
    ]
    const { fetch, clock, starts } = politeClient((_, i) => scripts[i] ?? {}, { attempts: 5, baseMs: 0 })
    for (let i = 0; i < 3; i++) void fetch(HOST, { method: i === 2 ? 'POST' : 'GET' }).catch(() => {})
    await clock.advance(MINUTE)
    // Three start before anything is known: the second is refused at 100, so the pause ends at 5100.
    expect(starts()).toEqual([0, 0, 0, 5100, 5100])
  })

  test('an answer that is not good lets no more be under way', async () => {
    const { fetch, clock, starts } = politeClient((_, i) => {
      if (i === 0) return { status: 429, headers: { 'retry-after': '5' } }
      return i === 1 ? { status: 500, afterMs: 100 } : { afterMs: 100 }
    })
    for (let i = 0; i < 4; i++) await Promise.all([void fetch(HOST, { method: 'POST' }), clock.advance(0)])
    await clock.advance(MINUTE)
    expect(starts()).toEqual([0, 5000, 5100, 5200, 5200])
  })

  test('those that were refused keep their place before those that came later', async () => {
    const refusal = { status: 429, headers: { 'retry-after': '5' } }
    const { fetch, clock, sent } = politeClient((_, i) => {
      if (i < 2) return { ...refusal, afterMs: i === 0 ? 0 : 1000 }
      return { afterMs: 100 }
    })
    for (const path of ['/a', '/b']) void fetch(HOST + path)
    await clock.advance(500)
    void fetch(`${HOST}/c`)
    await clock.advance(MINUTE)
    expect(sent.map(({ url }) => url.slice(-1))).toEqual(['a', 'b', 'a', 'b', 'c'])
  })

  test('nobody gives up because of a probe that may be answered in time', async () => {
    const { fetch, clock, starts } = politeClient(
      (_, i) => (i === 0 ? { status: 429, headers: { 'retry-after': '5' } } : { afterMs: 100 }),
      { timeoutMs: 20_000 },
    )
    const calls = [fetch(HOST)]
    await clock.advance(1000)
    calls.push(fetch(HOST), fetch(HOST))
    await clock.advance(MINUTE)
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual([200, 200, 200])
    expect(starts()).toEqual([0, 5000, 5100, 5100])
  })

  test('a probe that hangs holds the others for 30 s', async () => {
    const { fetch, clock, starts } = politeClient((_, i) => {
      if (i === 0) return { status: 429, headers: { 'retry-after': '5' } }
      return i === 1 ? { afterMs: 10 * MINUTE } : {}
    })
    void fetch(HOST).catch(() => {})
    await clock.advance(1000)
    void fetch(HOST)
    await clock.advance(MINUTE)
    expect(starts()).toEqual([0, 5000, 35_000])
  })

  test('an older, shorter refusal does not shorten it', async () => {
    const { fetch, clock, starts } = politeClient((_, i) => {
      if (i === 0) return { status: 429, headers: { 'retry-after': '1' }, afterMs: 1000 }
      return i === 1 ? { status: 429, headers: { 'retry-after': '20' } } : {}
    })
    void fetch(HOST)
    void fetch(HOST)
    await clock.advance(MINUTE)
    expect(starts()).toEqual([0, 0, 20_000, 20_000])
  })
})

describe('as a quota runs out', () => {
  /** A window of so many requests that ends at a time; what comes after it is free. */
  function quotaServer(
    limit: number,
    endMs: number,
    family: (left: number, seconds: number) => Record<string, string>,
  ) {
    let left = limit
    return ({ atMs }: Sent): Script => {
      if (atMs >= endMs) return {}
      left--
      return { headers: family(left, (endMs - atMs) / 1000) }
    }
  }
  const xFields = (left: number, seconds: number) => ({
    'x-ratelimit-limit': '10',
    'x-ratelimit-remaining': String(left),
    'x-ratelimit-reset-after': String(seconds),
  })
  const policies = (left: number, seconds: number) => ({
    'ratelimit-policy': '"a";q=10;w=60',
    ratelimit: `"a";r=${left};t=${Math.ceil(seconds)}`,
  })

  test.each([
    ['X-RateLimit', xFields],
    ['RateLimit', policies],
  ])('%s: starts are spread over the time to the reset', async (_, family) => {
    const { fetch, clock, starts, waits } = politeClient(quotaServer(10, 12_000, family))
    const all = async () => {
      for (let i = 0; i < 12; i++) await fetch(`${HOST}/a`)
    }
    const done = all()
    await clock.advance(MINUTE)
    await done
    // From 2 of 10 left on: 12 s over 2, and then to the reset.
    expect(starts()).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 6000, 12_000, 12_000, 12_000])
    expect(waits[0]).toMatchObject({ waitMs: 6000, reason: 'pace', attempt: 1 })
  })

  test('those under way count as sent, and the share can be set', async () => {
    const { fetch, clock, starts } = politeClient(quotaServer(10, 12_000, xFields), { slowBelow: 1 })
    await Promise.all([fetch(HOST), clock.advance(0)])
    for (let i = 0; i < 9; i++) void fetch(HOST)
    await clock.advance(MINUTE)
    const expected = Array.from({ length: 10 }, (_, i) => (i * 12_000) / 9)
    for (const [i, at] of starts().entries()) expect(at).toBeCloseTo(expected[i] as number, 3)
  })

  test('0 switches it off, but nothing left is nothing left', async () => {
    const { fetch, clock, starts } = politeClient(quotaServer(3, 12_000, xFields), { slowBelow: 0 })
    const all = async () => {
      for (let i = 0; i < 4; i++) await fetch(HOST)
    }
    const done = all()
    await clock.advance(MINUTE)
    await done
    expect(starts()).toEqual([0, 0, 0, 12_000])
  })

  test('an answer to an older request does not take the place of a newer one', async () => {
    const { fetch, clock, starts } = politeClient((_, i) =>
      i === 0 ? { headers: xFields(0, 50), afterMs: 100 } : { headers: xFields(9, 50) },
    )
    for (let i = 0; i < 2; i++) void fetch(HOST)
    await clock.advance(1000)
    void fetch(HOST)
    await clock.advance(MINUTE)
    expect(starts()).toEqual([0, 0, 1000])
  })

  test('cached answers tell nothing', async () => {
    const { fetch, clock, starts } = politeClient(() => ({ headers: { ...xFields(0, 50), age: '3' } }))
    await Promise.all([fetch(HOST), clock.advance(0)])
    await Promise.all([fetch(HOST), clock.advance(0)])
    expect(starts()).toEqual([0, 0])
  })
})

test('many calls at once to a token bucket: all get through, soon, and few are refused after the first ones', async () => {
  const perMs = 0.01
  const burst = 5
  let tokens = burst
  let filledMs = 0
  let refused = 0
  const { fetch, clock, starts } = politeClient(({ atMs }) => {
    tokens = Math.min(burst, tokens + (atMs - filledMs) * perMs)
    filledMs = atMs
    if (tokens < 1) {
      refused++
      return { status: 429, headers: { 'retry-after-ms': String(Math.ceil((1 - tokens) / perMs)) }, afterMs: 20 }
    }
    tokens--
    const resetS = ((burst - tokens) / perMs / 1000).toFixed(3)
    const fields = { limit: burst, remaining: Math.floor(tokens), 'reset-after': resetS }
    const headers = Object.entries(fields).map(([name, value]) => [`x-ratelimit-${name}`, String(value)])
    return { headers: Object.fromEntries(headers), afterMs: 20 }
  })
  const calls = Array.from({ length: 40 }, (_, i) => fetch(`${HOST}/${i}`))
  await clock.advance(MINUTE)
  const answers = await Promise.all(calls)
  expect(answers.map(({ status }) => status)).toEqual(Array(40).fill(200))
  // Those that start before anything is known; 3.5 s are the least it can take.
  expect(refused).toBe(35)
  expect(Math.max(...starts())).toBeLessThan(4000)
})

test('no more buckets are remembered than maxBuckets, whatever the other side calls them', async () => {
  const { fetch, clock, client } = politeClient((_, i) => ({ headers: { 'x-ratelimit-bucket': `b${i}` } }), {
    maxBuckets: 5,
  })
  for (let i = 0; i < 50; i++) await Promise.all([fetch(`${HOST}/${i}/x`), clock.advance(0)])
  expect(client.size).toEqual({ waiting: 0, buckets: 5 })
})

test('onWait may come back with another request; what it throws rejects the call', async () => {
  let again: Promise<Response> | undefined
  let calls = 0
  const { fetch, clock, client, starts } = politeClient(
    (_, i) => (i === 0 ? { status: 429, headers: { 'retry-after': '5' } } : {}),
    {
      onWait: () => {
        if (++calls > 1) throw new Error('from the hook')
        again = fetch(`${HOST}/again`)
        again.catch(() => {})
      },
    },
  )
  const call = fetch(HOST)
  await clock.advance(MINUTE)
  expect((await call).status).toBe(200)
  await expect(again).rejects.toThrow('from the hook')
  expect(starts()).toEqual([0, 5000])
  expect(client.size.waiting).toBe(0)
  expect(clock.timers).toBe(0)
})
