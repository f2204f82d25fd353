import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Agent, interceptors, request, fetch as undiciFetch } from 'undici'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { HttpAnswer } from '../../../src/egress/answer.ts'
import { answerOf } from '../../../src/egress/answers/answer-of.ts'

const at = { receivedAtMs: 1_800_000_000_000, latencyMs: 12 }
const REFUSED = { error: { message: 'slow down', type: 'rate_limit', code: 'rate_limit' } }

let server: Server
let url = ''

beforeAll(async () => {
  server = createServer((req, res) => {
    req.resume()
    res.writeHead(Number(req.url?.slice(1)), [
      ...['Content-Type', 'application/json', 'Retry-After', '7', 'X-Many', 'a', 'X-Many', 'b'],
    ])
    res.end(JSON.stringify(REFUSED))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})

afterAll(() => {
  server.closeAllConnections()
  return new Promise((resolve) => server.close(resolve))
})

async function ended(run: () => Promise<unknown>) {
  const outcome = await run().then(
    (returned) => ({ returned }),
    (threw: unknown) => ({ threw }),
  )
  return answerOf(outcome, at)
}

async function thrown(value: Promise<unknown>): Promise<never> {
  throw await value
}

test('a Response of fetch is an answer whose body stays unread', async () => {
  const response = await fetch(`${url}/429`)
  const answer = answerOf({ returned: response }, at)
  expect(answer).toMatchObject({
    ...{ protocol: 'http', failed: true, status: 429, text: '', name: '', code: '' },
    headers: { 'retry-after': '7', 'x-many': 'a, b', 'content-type': 'application/json' },
    ...{ url: `${url}/429`, receivedAtMs: at.receivedAtMs },
  })
  expect((answer as HttpAnswer).body).toBeUndefined()
  expect(response.bodyUsed).toBe(false)
  expect(await response.json()).toEqual(REFUSED)
})

test.each([
  ['fetch of undici', () => undiciFetch(`${url}/429`)],
  ['a thrown Response', () => thrown(fetch(`${url}/429`))],
  ['a Response in error.response', async () => thrown(wrapped('response'))],
  [
    'a Response in error.cause.response',
    async () => thrown(wrapped('response').then((cause) => new Error('x', { cause }))),
  ],
])('%s is read as a Response is', async (_, run) => {
  expect(await ended(run)).toMatchObject({
    protocol: 'http',
    failed: true,
    status: 429,
    headers: { 'retry-after': '7' },
  })
})

async function wrapped(name: string): Promise<Error> {
  return Object.assign(new Error('refused'), { [name]: await fetch(`${url}/429`) })
}

test("undici's request: the stream of the body is left to the processor", async () => {
  const result = await request(`${url}/503`)
  const answer = answerOf({ returned: result }, at) as HttpAnswer
  expect(answer).toMatchObject({ status: 503, failed: true, headers: { 'retry-after': '7', 'x-many': 'a, b' } })
  expect(answer.body).toBeUndefined()
  expect(await result.body.json()).toEqual(REFUSED)
})

test("undici's ResponseError has the body parsed", async () => {
  const dispatcher = new Agent().compose(interceptors.responseError())
  const answer = await ended(() => request(`${url}/429`, { dispatcher }))
  await dispatcher.close()
  expect(answer).toMatchObject({
    ...{ status: 429, failed: true, code: 'UND_ERR_RESPONSE', name: 'ResponseError', text: 'Response Error' },
    ...{ headers: { 'retry-after': '7' }, body: REFUSED },
  })
})

test('a good answer is no failure, and neither is one that was not thrown', async () => {
  expect(await ended(() => fetch(`${url}/200`))).toMatchObject({ status: 200, failed: false })
  expect(await ended(() => thrown(fetch(`${url}/200`)))).toMatchObject({ status: 200, failed: true })
})

/** As axios 1.x has its headers: instances with `toJSON`. */
class AxiosHeaders {
  'Retry-After' = '7'
  'set-cookie' = ['a=1', 'b=2']
  toJSON() {
    return { ...this }
  }
}

const axiosResponse = {
  ...{ status: 429, statusText: 'Too Many Requests', headers: new AxiosHeaders(), data: REFUSED },
  config: { url: '/charges', baseURL: 'https://api.example.com', method: 'post' },
  request: { method: 'POST', res: { responseUrl: 'https://api.example.com/charges' } },
}
const gotResponse = {
  ...{
    statusCode: 429,
    headers: { 'retry-after': '7', 'content-type': 'application/json' },
    url: 'https://a.example/x',
  },
  body: JSON.stringify(REFUSED),
}
const plain = { 'retry-after': '7' }
const octokitResponse = { status: 403, url: 'https://api.github.com/x', headers: plain, data: { message: 'secondary' } }
const githubRequest = { method: 'GET', url: 'https://api.github.com/x', headers: {} }
const stripeRaw = { ...REFUSED.error, headers: plain, statusCode: 429, requestId: 'req_1' }

/** Errors with the fields that the libraries' own have, seen with those libraries against a server on loopback. */
const thrownByLibraries: [string, object, object][] = [
  [
    'axios 1.21',
    { name: 'AxiosError', isAxiosError: true, code: 'ERR_BAD_REQUEST', status: 429, response: axiosResponse },
    { status: 429, url: 'https://api.example.com/charges', method: 'POST', body: REFUSED, code: 'ERR_BAD_REQUEST' },
  ],
  [
    'got 14.6',
    { name: 'HTTPError', code: 'ERR_NON_2XX_3XX_RESPONSE', options: { method: 'POST' }, response: gotResponse },
    { status: 429, url: 'https://a.example/x', method: 'POST', body: REFUSED },
  ],
  [
    'Octokit, @octokit/request-error 7.1',
    { name: 'HttpError', status: 403, request: githubRequest, response: octokitResponse },
    { status: 403, url: 'https://api.github.com/x', method: 'GET', body: { message: 'secondary' } },
  ],
  [
    'Stripe 23',
    { type: 'StripeRateLimitError', rawType: 'rate_limit', code: 'rate_limit', ...stripeFields() },
    { status: 429, code: 'rate_limit', body: { error: { type: 'rate_limit', code: 'rate_limit' } } },
  ],
  [
    'OpenAI 6.49',
    { status: 429, headers: new Headers(plain), error: REFUSED.error, code: 'rate_limit', requestID: 'r' },
    { status: 429, code: 'rate_limit', body: REFUSED },
  ],
  [
    'Anthropic 1.12',
    { status: 529, headers: new Headers(plain), error: { type: 'error', error: { type: 'overloaded_error' } } },
    { status: 529, code: '', body: { type: 'error', error: { type: 'overloaded_error' } } },
  ],
  ['http-errors', { status: 429, statusCode: 429, expose: true, headers: plain }, { status: 429 }],
]

function stripeFields() {
  return { statusCode: 429, headers: plain, raw: stripeRaw, requestId: 'req_1' }
}

test.each(thrownByLibraries)('%s: what it throws', (_, fields, expected) => {
  const threw = Object.assign(new Error('refused'), fields)
  expect(answerOf({ threw }, at)).toMatchObject({
    ...{ protocol: 'http', failed: true, text: 'refused', headers: { 'retry-after': '7' } },
    ...expected,
  })
})

test.each([
  ['axios', axiosResponse, 429],
  ['got', gotResponse, 429],
  ['Octokit', octokitResponse, 403],
])('%s: what it returns where it does not throw', (_, returned, status) => {
  expect(answerOf({ returned }, at)).toMatchObject({ status, failed: true, headers: { 'retry-after': '7' } })
})

/** As ServiceException of @smithy/core 3.41: `$response` is not enumerable. */
function awsError(name: string, httpStatusCode: number, headers: object, extra = {}) {
  const error = Object.assign(new Error('Rate exceeded'), {
    name,
    $fault: 'client',
    $metadata: { httpStatusCode },
    ...extra,
  })
  return Object.defineProperty(error, '$response', { value: { statusCode: httpStatusCode, headers } })
}

test('the AWS SDK: name, status and fields of the response; its mark for throttling stands in the place of the body', () => {
  const threw = awsError(
    'ThrottlingException',
    400,
    { 'x-amz-retry-after': '1500' },
    { $retryable: { throttling: true } },
  )
  expect(answerOf({ threw }, at)).toMatchObject({
    ...{ protocol: 'http', status: 400, name: 'ThrottlingException', text: 'Rate exceeded' },
    ...{ headers: { 'x-amz-retry-after': '1500' }, body: { $retryable: { throttling: true } } },
  })
  // nodemailer's SES transport gives it a code of its own.
  const sent = awsError('TooManyRequestsException', 429, {}, { code: 'ESES' })
  expect(answerOf({ threw: sent }, at)).toMatchObject({
    protocol: 'http',
    status: 429,
    name: 'TooManyRequestsException',
  })
  expect(answerOf({ returned: { MessageId: '1', $metadata: { httpStatusCode: 200 } } }, at)).toMatchObject({
    ...{ status: 200, failed: false },
  })
})

test('an AWS request that got no answer is no HTTP answer', () => {
  const threw = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED', $metadata: { attempts: 1 } })
  expect(answerOf({ threw }, at)).toMatchObject({ protocol: 'other', code: 'ECONNREFUSED' })
})

/** As ServiceError of @grpc/grpc-js. */
const metadata = {
  getMap: () => ({ 'grpc-retry-pushback-ms': '250' }),
  toJSON: () => ({ 'grpc-retry-pushback-ms': ['250'] }),
}

test.each([
  [8, 'RESOURCE_EXHAUSTED', 429],
  [14, 'UNAVAILABLE', 503],
  [16, 'UNAUTHENTICATED', 401],
])('gRPC code %i is %s, with the status %i that its definition names', (code, name, status) => {
  const threw = Object.assign(new Error(`${code} ${name}: quota`), { code, details: 'quota', metadata })
  expect(answerOf({ threw }, at)).toMatchObject({
    ...{ protocol: 'http', failed: true, status, code: name },
    headers: { 'grpc-retry-pushback-ms': '250', 'grpc-status': String(code) },
  })
})

test.each([
  ['nothing', undefined],
  ['null', null],
  ['a text', 'sent'],
  ['a number', 429],
  ['a result with a status that is none', { status: 'sent', headers: {} }],
  ['a result with a status and no headers', { status: 429 }],
  ['a status out of range', { status: 42, headers: {} }],
  ['a result of nodemailer', { accepted: ['a@b.c'], response: '250 2.0.0 Ok', messageId: '1' }],
  ['a result of pg', { command: 'INSERT', rowCount: 1, rows: [] }],
  ['an error that was returned', Object.assign(new Error('x'), { response: axiosResponse })],
])('%s that was returned is no HTTP answer', (_, returned) => {
  expect(answerOf({ returned }, at)).toBeUndefined()
})

test('Octokit writes status 500 where no response came: that is no answer of the server', () => {
  const cause = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
  const threw = Object.assign(new Error('fetch failed', { cause }), {
    name: 'HttpError',
    status: 500,
    request: githubRequest,
  })
  expect(answerOf({ threw }, at)).toMatchObject({ protocol: 'other', code: 'ECONNREFUSED' })
})

test('a refused connection keeps the text of fetch and what its cause says', async () => {
  const closed = createServer()
  await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve))
  const { port } = closed.address() as AddressInfo
  await new Promise((resolve) => closed.close(resolve))
  expect(await ended(() => fetch(`http://127.0.0.1:${port}/`))).toEqual({
    ...{ protocol: 'other', failed: true, name: 'TypeError', code: 'ECONNREFUSED' },
    text: `fetch failed: connect ECONNREFUSED 127.0.0.1:${port}`,
  })
})

test.each([
  ['JSON', '{"a":1}', 'application/problem+json', { a: 1 }],
  ['what is not JSON in spite of its type', '{a', 'application/json', '{a'],
  ['JSON under another type', '{"a":1}', 'text/plain', '{"a":1}'],
  ['bytes', Buffer.from('{"a":"ä"}'), 'application/json; charset=utf-8', { a: 'ä' }],
  ['a long text', 'x'.repeat(100_000), 'text/plain', 'x'.repeat(65_536)],
  ['JSON that is too long', `"${'x'.repeat(100_000)}"`, 'application/json', `"${'x'.repeat(65_535)}`],
  ['an instance of a class', new Map(), 'application/json', undefined],
])('body: %s', (_, body, type, expected) => {
  const returned = { statusCode: 200, headers: { 'Content-Type': type }, body }
  expect((answerOf({ returned }, at) as HttpAnswer).body).toEqual(expected)
})

test.each([
  ['Headers', new Headers([['Retry-After', '7']])],
  ['a Map', new Map([['Retry-After', '7']])],
  ['pairs', [['Retry-After', '7']]],
  ['a flat array of bytes', [Buffer.from('Retry-After'), Buffer.from('7')]],
  ['lists of lines', { 'Retry-After': ['7'] }],
  ['numbers', { 'retry-after': 7 }],
])('headers: %s', (_, headers) => {
  expect(answerOf({ returned: { status: 429, headers } }, at)).toMatchObject({ headers: { 'retry-after': '7' } })
})
