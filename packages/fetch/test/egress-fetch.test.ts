import { EventEmitter, once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type EgressFetchOptions, HttpResponseError, RequestFailedError, RequestTimeoutError } from '../src/index.ts'
import { useFetches } from './fetches.ts'
import { failureOf, useServer } from './server.ts'

const server = useServer()
const elsewhere = useServer()
const open = useFetches()

const openHere = (options: EgressFetchOptions = {}) =>
  open({ targets: { here: { baseUrl: `${server.url}/base` } }, ...options })
const target = 'here'

function answerWith(status: number, headers: Record<string, string | string[]>, body: string | Buffer): void {
  server.answer((_, response) => response.writeHead(status, headers).end(body))
}

test('one request is sent, as it was asked for', async () => {
  answerWith(201, { 'content-type': 'application/json; charset=utf-8' }, '{"id":1}')
  const request = { target, path: '/a%2Fb', query: { c: 'd e' }, headers: { prefer: 'x' }, json: { ä: 1 } }
  expect(await openHere()(request)).toEqual({
    status: 201,
    headers: { 'content-type': 'application/json; charset=utf-8', date: expect.any(String) },
    body: { id: 1 },
    bodyTruncated: false,
    durationMs: expect.any(Number),
  })
  expect(server.requests).toEqual([
    {
      method: 'POST',
      url: '/base/a%2Fb?c=d+e',
      headers: expect.objectContaining({ prefer: 'x', 'content-length': '8', 'accept-encoding': 'identity' }),
      body: '{"ä":1}',
    },
  ])
})

test('any method that may have a body sends it whole, and its length', async () => {
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'] as const) await openHere()({ target, method, text: 'ä' })
  const sent = server.requests.map(({ body, headers }) => [
    body,
    headers['content-length'],
    headers['transfer-encoding'],
  ])
  expect(sent).toEqual(Array.from({ length: 4 }, () => ['ä', '2', undefined]))
})

test('closing lets what runs finish; then nothing is sent', async () => {
  const asked = new Promise<ServerResponse>((resolve) => server.answer((_, response) => resolve(response)))
  const fetch = openHere()
  const running = fetch({ target })
  const response = await asked
  const closed = fetch.close()
  expect(await failureOf(fetch({ target }))).toBeInstanceOf(RequestFailedError)
  response.end('late')
  expect(await running).toMatchObject({ body: 'late' })
  await closed
  expect(server.requests).toHaveLength(1)
})

test('two attempts of a job carry one idempotency key', async () => {
  const fetch = openHere()
  const job = { id: '1', queueName: 'http', prefix: 'bull', timestamp: 1 }
  await fetch({ target }, { job })
  await fetch({ target }, { job: { ...job } })
  await fetch({ target }, { job: { ...job, id: '2' } })
  const [first, second, other] = server.requests.map(({ headers }) => headers['idempotency-key'])
  expect(first).toMatch(/^[\da-f]{64}$/)
  expect([second === first, other === first]).toEqual([true, false])
})

describe('an answer that is not 2xx', () => {
  test('is thrown with what it said, and not asked for again', async () => {
    const headers = { 'content-type': 'application/problem+json', 'Retry-After': '7', RateLimit: '"a";r=0;t=7' }
    answerWith(429, headers, '{"title":"slow down"}')
    const failure = await failureOf(openHere()({ target, path: '/a', query: { b: 'c' } }))
    expect(failure).toBeInstanceOf(HttpResponseError)
    expect(failure).toMatchObject({
      name: 'HttpResponseError',
      message: 'POST to target "here" was answered with 429',
      statusCode: 429,
      headers: { 'content-type': 'application/problem+json', 'retry-after': '7', ratelimit: '"a";r=0;t=7' },
      body: { title: 'slow down' },
      url: `${server.url}/base/a`,
      method: 'POST',
    })
    expect(server.requests).toHaveLength(1)
  })

  test.each([301, 302, 303, 307, 308])('%i is not followed', async (status) => {
    for (const location of [`${elsewhere.url}/`, 'http://169.254.169.254/latest/meta-data/', '/base/other']) {
      answerWith(status, { location }, '')
      expect(await failureOf(openHere()({ target, method: 'GET' }))).toMatchObject({
        statusCode: status,
        headers: { location },
      })
    }
    expect(elsewhere.connections).toBe(0)
    expect(server.requests.map(({ url }) => url)).toEqual(['/base', '/base', '/base'])
  })

  test.each([500, 502, 503, 408, 425])('%i is not tried again', async (status) => {
    answerWith(status, {}, 'no')
    expect(await failureOf(openHere()({ target, method: 'GET' }))).toMatchObject({ statusCode: status, body: 'no' })
    expect(server.requests).toHaveLength(1)
  })
})

describe('an answer that is not 2xx decides by its status and headers', () => {
  const headers = { 'content-type': 'application/json', 'content-length': '1000', 'retry-after': '7' }
  const refused = { name: 'HttpResponseError', statusCode: 429, headers: { 'retry-after': '7' } }

  test('where its body breaks off', async () => {
    server.answer((_, response) => {
      response.writeHead(429, headers).write('{"title":"slow')
      setImmediate(() => response.destroy())
    })
    expect(await failureOf(openHere()({ target }))).toMatchObject({ ...refused, body: '{"title":"slow' })
  })

  test.each([900, 30_000])('where its body hangs, and an attempt may take %i ms', async (timeoutMs) => {
    server.answer((_, response) => void response.writeHead(429, headers).flushHeaders())
    expect(await failureOf(openHere({ timeoutMs })({ target }))).toMatchObject({ ...refused, body: '' })
  })

  test('where its body is not what its encoding says, or is too long', async () => {
    answerWith(429, { 'retry-after': '7', 'content-encoding': 'gzip' }, Buffer.alloc(100))
    expect(await failureOf(openHere()({ target }))).toMatchObject(refused)
    answerWith(429, { 'retry-after': '7' }, 'x'.repeat(100_000))
    const body = 'x'.repeat(10)
    expect(await failureOf(openHere({ maxResponseBytes: 10 })({ target }))).toMatchObject({ ...refused, body })
  })

  test('but not where the attempt was called off', async () => {
    server.answer((_, response) => void response.writeHead(429, headers).flushHeaders())
    const calledOff = new AbortController()
    const asking = failureOf(openHere()({ target }, { signal: calledOff.signal }))
    await expect.poll(() => server.requests).toHaveLength(1)
    calledOff.abort(new Error('called off'))
    expect(await asking).toMatchObject({ message: 'called off' })
  })

  test('a 2xx without its whole body has failed', async () => {
    server.answer((_, response) => {
      response.writeHead(200, headers).write('{"id":')
      setImmediate(() => response.destroy())
    })
    expect(await failureOf(openHere()({ target }))).toBeInstanceOf(RequestFailedError)
  })
})

describe('the body', () => {
  test('is kept up to its limit', async () => {
    answerWith(200, { 'content-type': 'application/json' }, JSON.stringify('x'.repeat(100)))
    const fetch = openHere({ maxBodyChars: 10 })
    expect(await fetch({ target })).toMatchObject({ body: '"xxxxxxxxx', bodyTruncated: true })
  })

  test.each([
    ['text/plain', '{}', '{}'],
    ['application/json', '{"broken', '{"broken'],
    ['application/json', '', ''],
    ['application/vnd.api+json', '[1]', [1]],
    ['APPLICATION/JSON', '1', 1],
    ['application/json', '\ufeff{"a":1}', { a: 1 }],
    ['text/html; x=/json', '1', '1'],
    ['image/png', Buffer.from([0x89, 0x50, 0xff]), '\ufffdP\ufffd'],
  ])('of type %s: %j is %j', async (contentType, sent, body) => {
    answerWith(200, { 'content-type': contentType }, sent)
    expect(await openHere()({ target })).toMatchObject({ body, bodyTruncated: false })
  })

  test('is not unpacked', async () => {
    answerWith(200, { 'content-encoding': 'gzip' }, gzipSync(Buffer.alloc(10_000_000)))
    const { body, headers } = await openHere()({ target })
    expect((body as string).length).toBeLessThan(10_001)
    // Without it nobody would know what these bytes are.
    expect(headers['content-encoding']).toBe('gzip')
    expect(server.requests[0]?.headers['accept-encoding']).toBe('identity')
  })

  test('is read up to its limit: then the connection is closed', async () => {
    const closed = new Promise<void>((resolve) => {
      server.answer((_, response) => {
        const write = () => response.write(Buffer.alloc(100_000, 'x'))
        response.on('drain', write)
        response.on('close', resolve)
        write()
      })
    })
    const fetch = openHere({ maxResponseBytes: 10_000, maxBodyChars: 100_000 })
    expect(await fetch({ target })).toMatchObject({ status: 200, body: 'x'.repeat(10_000), bodyTruncated: true })
    await closed
  })

  test('of exactly the limit is whole', async () => {
    answerWith(200, {}, 'x'.repeat(10))
    const fetch = openHere({ maxResponseBytes: 10, maxBodyChars: 10 })
    expect(await fetch({ target })).toMatchObject({ body: 'x'.repeat(10), bodyTruncated: false })
  })
})

describe('headers of an answer', () => {
  test('are kept when they are known', async () => {
    const kept = {
      etag: '"a"',
      location: '/x',
      'ratelimit-policy': '"a";q=1',
      'x-ratelimit-reset-requests': '6m0s',
      'x-rate-limit-reset': '1',
      'anthropic-ratelimit-tokens-reset': '2026-01-01T00:00:00Z',
      'x-ms-ratelimit-remaining-requests': '1',
      'x-shopify-shop-api-call-limit': '1/40',
      'retry-after-ms': '5',
      'x-request-id': 'r1',
    }
    answerWith(200, { ...kept, 'set-cookie': ['a=b', 'c=d'], server: 'x', 'x-powered-by': 'x', 'x-corporate': 'x' }, '')
    const { headers } = await openHere()({ target })
    expect(headers).toEqual({ ...kept, date: expect.any(String) })
  })

  test('that come several times are joined', async () => {
    answerWith(200, { ratelimit: ['"a";r=1', '"b";r=2'] }, '')
    expect((await openHere()({ target })).headers).toMatchObject({ ratelimit: '"a";r=1, "b";r=2' })
  })
})

describe('the time limit', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  /** An answer that has begun, and will not end before its connection does. */
  function holdAnswer(begin: (response: ServerResponse) => void): {
    begun: Promise<unknown>
    closed: Promise<unknown>
  } {
    const events = new EventEmitter()
    server.answer((_, response) => {
      response.on('close', () => events.emit('closed'))
      begin(response)
      events.emit('begun')
    })
    return { begun: once(events, 'begun'), closed: once(events, 'closed') }
  }

  test.each<[string, (response: ServerResponse) => void]>([
    ['its head', () => undefined],
    ['its body', (response) => response.writeHead(200).flushHeaders()],
    ['the end of its body', (response) => response.write('some')],
  ])('holds for an answer that stops before %s, and the connection is closed', async (_, begin) => {
    const { begun, closed } = holdAnswer(begin)
    let failure: Error | undefined
    const failed = failureOf(openHere({ timeoutMs: 5000 })({ target })).then((error) => {
      failure = error
    })
    await begun
    await vi.advanceTimersByTimeAsync(4999)
    expect(failure).toBeUndefined()
    await vi.advanceTimersByTimeAsync(1)
    await failed
    expect(failure).toBeInstanceOf(RequestTimeoutError)
    expect(failure).toMatchObject({
      message: 'POST to target "here" was not answered within 5000 ms',
      code: 'ETIMEDOUT',
      timeoutMs: 5000,
    })
    await closed
    expect(server.requests).toHaveLength(1)
  })

  test('holds for an answer that drips', async () => {
    const { begun, closed } = holdAnswer((response) => {
      const drip = setInterval(() => response.write('x'), 5)
      response.on('close', () => clearInterval(drip))
    })
    const failed = failureOf(openHere({ timeoutMs: 5000 })({ target }))
    await begun
    await vi.advanceTimersByTimeAsync(5000)
    expect(await failed).toBeInstanceOf(RequestTimeoutError)
    await closed
  })
})

describe('a signal', () => {
  test('gives up the attempt with its reason', async () => {
    const reason = new Error('cancelled')
    const controller = new AbortController()
    const closed = new Promise<void>((resolve) => {
      server.answer((_, response) => {
        response.on('close', resolve)
        controller.abort(reason)
      })
    })
    expect(await failureOf(openHere()({ target }, { signal: controller.signal }))).toBe(reason)
    await closed
  })

  test('that was given before sends nothing', async () => {
    const reason = new Error('cancelled')
    expect(await failureOf(openHere()({ target }, { signal: AbortSignal.abort(reason) }))).toBe(reason)
    expect(server.connections).toBe(0)
  })
})

describe('a broken connection', () => {
  test('fails the attempt once', async () => {
    server.answer((request) => request.socket.destroy())
    const failure = await failureOf(openHere()({ target, method: 'GET' }))
    expect(failure).toBeInstanceOf(RequestFailedError)
    expect(failure).toMatchObject({
      message: 'GET to target "here" failed: socket hang up',
      code: 'ECONNRESET',
    })
    expect(server.requests).toHaveLength(1)
  })

  test('in the body fails the attempt', async () => {
    server.answer((request, response) => {
      response.writeHead(200, { 'content-length': '100' }).write('some', () => request.socket.destroy())
    })
    expect(await failureOf(openHere()({ target }))).toBeInstanceOf(RequestFailedError)
  })

  test('that is refused has its code', async () => {
    const fetch = open({ targets: { nobody: { baseUrl: 'http://127.0.0.1:1' } } })
    expect(await failureOf(fetch({ target: 'nobody' }))).toMatchObject({
      message: 'POST to target "nobody" failed: connect ECONNREFUSED 127.0.0.1:1',
      code: 'ECONNREFUSED',
    })
  })
})
