import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import { MAIL, placeIn, post, queueOf, told, useGateway } from './support.ts'

const redis = useRedis(import.meta.url)
const place = placeIn(redis)
const QUEUES = {
  mails: { schema: MAIL, maxBodyBytes: 2000 },
  any: { schema: true },
  flat: { schema: true, maxDepth: 3 },
} as const

const gateway = useGateway(place, QUEUES)

const item = (data: string) => `{"data":${data}}`
const nested = (depth: number) => item('['.repeat(depth) + ']'.repeat(depth))

const BODIES: readonly [what: string, queue: keyof typeof QUEUES, body: string | Uint8Array, status: number][] = [
  ['nothing', 'any', '', 400],
  ['no JSON', 'any', '{"data":', 400],
  ['two values', 'any', '{"data":1}{"data":2}', 400],
  ['a byte order mark', 'any', `\ufeff${item('1')}`, 400],
  [
    'bytes that are no UTF-8',
    'any',
    Buffer.concat([Buffer.from('{"data":"'), Buffer.from([0xff]), Buffer.from('"}')]),
    400,
  ],
  [
    'an overlong form of a slash',
    'any',
    Buffer.concat([Buffer.from('{"data":"'), Buffer.from([0xc0, 0xaf]), Buffer.from('"}')]),
    400,
  ],
  ['a __proto__', 'any', item('{"__proto__":{"x":1}}'), 400],
  ['an escaped __proto__', 'any', item('{"__pr\\u006fto__":{"x":1}}'), 400],
  ['a __proto__ of the request', 'any', '{"data":1,"__proto__":{"x":1}}', 400],
  ['a __proto__ deep inside', 'any', item('[[{"a":[{"__proto__":null}]}]]'), 400],
  ['a constructor with a prototype', 'any', item('{"constructor":{"prototype":{"x":1}}}'), 400],
  ['a constructor without one', 'any', item('{"constructor":"of houses"}'), 202],
  ['a number that is out of range', 'any', item('1e999'), 400],
  ['64 levels', 'any', nested(63), 202],
  ['65 levels', 'any', nested(64), 400],
  ['10,000 levels', 'any', nested(10_000), 400],
  ['3 levels where 3 are allowed', 'flat', nested(2), 202],
  ['4 levels where 3 are allowed', 'flat', nested(3), 400],
  ['brackets in a string, which are none', 'flat', item('"[[[[[[\\"[[[["'), 202],
  ['a value that is no object', 'any', '1', 422],
  ['no data', 'any', '{}', 422],
  ['a member that is not known', 'any', '{"data":1,"jobId":"active"}', 422],
  ['options that are not allowed', 'any', '{"data":1,"opts":{"priority":1}}', 422],
  ['null', 'any', item('null'), 202],
  ['of equal keys the last one', 'mails', item('{"to":1,"to":"a@example.com"}'), 202],
  ['data that breaks the schema', 'mails', item('{"to":"nobody"}'), 422],
  ['too many bytes', 'mails', item(`{"to":"${'a'.repeat(2000)}@example.com"}`), 413],
  ['more bytes than the adapter reads', 'any', item(`"${'a'.repeat(1_048_576)}"`), 413],
]

// Fault table, rows 26 and 27.
test.each(BODIES)('%s (%s)', async (_what, queue, body, status) => {
  const { url, errors } = gateway()
  const response = await post(`${url}/queues/${queue}/jobs`, body)
  expect(response.status).toBe(status)
  const type = status < 400 ? 'application/json' : 'application/problem+json'
  expect(response.headers.get('content-type')).toBe(type)
  expect(response.headers.get('cache-control')).toBe('no-store')
  expect(await told(response)).toMatchObject({ status })
  expect(errors).toEqual([])
})

test('a stream without a length is cut off', async () => {
  const { url } = gateway()
  let sent = 0
  const body = new ReadableStream({
    pull: (controller) => {
      sent += 65_536
      controller.enqueue(Buffer.alloc(65_536, ' '))
    },
  })
  const headers = { 'content-type': 'application/json' }
  const init = { method: 'POST', body, headers, duplex: 'half' } as RequestInit
  const status = await fetch(`${url}/queues/any/jobs`, init).then(
    (response) => response.status,
    () => 'cut',
  )
  expect([413, 'cut']).toContain(status)
  expect(sent).toBeLessThan(16 * 1_048_576)
})

test('what was said to be wrong has a pointer', async () => {
  const { url } = gateway()
  const body = [{ data: { to: 'a@example.com' } }, { data: { to: 'nobody' } }, { data: {} }, {}]
  expect(await told(post(`${url}/queues/mails/jobs`, body))).toMatchObject({
    status: 422,
    errors: [
      { pointer: '/1/data/to', detail: 'must match format "email"' },
      { pointer: '/2/data', detail: "must have required property 'to'" },
      { pointer: '/3', detail: "must have required property 'data'" },
    ],
  })
  expect(await queueOf(place, 'mails').getWaitingCount()).toBe(1)
})

const JSON_TYPES: readonly [type: string | undefined, status: number][] = [
  ['application/json', 202],
  ['application/json; charset=utf-8', 202],
  ['Application/JSON;charset="UTF-8"', 202],
  ['application/json; charset=latin1', 415],
  ['application/json, text/html', 415],
  ['application/merge-patch+json', 415],
  ['text/plain', 415],
  ['application/x-www-form-urlencoded', 415],
  ['', 415],
]

test.each(JSON_TYPES)('content type %j: %i', async (type, status) => {
  const { url } = gateway()
  const response = await post(`${url}/queues/any/jobs`, Buffer.from(item('1')), { 'content-type': type as string })
  expect(response.status).toBe(status)
  expect(response.headers.get('accept-post')).toBe(status === 415 ? 'application/json' : null)
})

test.each(['gzip', 'br', 'deflate', 'gzip, gzip', 'identity, gzip', 'bzip2'])('coding %s: 415', async (coding) => {
  const { url } = gateway()
  const bomb = gzipSync(Buffer.alloc(20_000_000, '['))
  const response = await post(`${url}/queues/any/jobs`, bomb, { 'content-encoding': coding })
  expect(response.status).toBe(415)
  expect(response.headers.get('accept-encoding')).toBe('identity')
})

describe('strings of callers', () => {
  test('no prototype is reached, and no id is accepted', async () => {
    const { url } = gateway()
    for (const body of ['{"__proto__":{"x":1}}', '{"constructor":{"prototype":{"x":1}}}']) {
      await post(`${url}/queues/any/jobs`, item(body))
    }
    expect(({} as Record<string, unknown>).x).toBeUndefined()
  })

  const IDS = [
    'active',
    'wait',
    'meta',
    'a:b',
    'a:b:c',
    '1',
    'j_',
    `j_${'x'.repeat(28)}`,
    '..%2fmeta',
    '{}',
    '%00',
    '*',
  ]

  test.each(IDS)('no job has the id %s, and the queue goes on', async (id) => {
    const { url } = gateway()
    const jobs = `${url}/queues/any/jobs`
    expect(await told(fetch(`${jobs}/${id}`))).toMatchObject({ status: 404 })
    expect(await told(fetch(`${jobs}/${id}`, { method: 'DELETE' }))).toMatchObject({ status: 404 })
    expect((await post(jobs, { data: 1 })).status).toBe(202)
  })

  const KEYS = ['active', 'a:b:c', '{}', 'x}{y', '__proto__', '*', 'meta']

  test.each(KEYS)('the Idempotency-Key %s becomes no key of Redis', async (key) => {
    const { url } = gateway()
    const jobs = `${url}/queues/any/jobs`
    const headers = { 'idempotency-key': JSON.stringify(key) }
    const { status, id } = await told(post(jobs, { data: key }, headers))
    expect(status).toBe(202)
    expect(id).toMatch(/^j_[\w-]{27}$/)
    expect(await told(fetch(`${jobs}/${id}`))).toMatchObject({ status: 200, state: 'waiting' })
    const keys = await redis.client().keys(`${redis.prefix}:any:*`)
    expect(keys.filter((one) => one.endsWith(`:${key}`) && !/:(meta|active)$/.test(one))).toEqual([])
  })

  test.each([`"${'x'.repeat(129)}"`, '""', '"a', '"a", "b"', 'a b', 'é', '?1', ''])(
    'the Idempotency-Key %j is malformed',
    async (key) => {
      const { url } = gateway()
      const answer = told(post(`${url}/queues/any/jobs`, { data: 1 }, { 'idempotency-key': key }))
      expect(await answer).toMatchObject({ status: 400 })
    },
  )

  test.each([
    '/queues/active/jobs',
    '/queues/meta/meter',
    '/queues/any%3Ameta/jobs',
    '/queues/any%0d%0a/jobs',
    '/queues/',
    '/queues',
    '/queues/any',
    '/queues/any/',
    '/queues/any/jobs/',
    '/queues/any/jobs/a/b',
    '/queues//jobs',
    '/queues/__proto__/jobs',
  ])('%s is not there', async (path) => {
    const { url } = gateway()
    const response = await post(`${url}${path}`, { data: 1 })
    expect(response.headers.get('content-type')).toBe('application/problem+json')
    expect(await told(response)).toMatchObject({ status: 404 })
  })
})
