import { UnrecoverableError } from 'bullmq'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type EgressFetch, egressFetch, HttpResponseError, RequestFailedError } from '../../fetch/src/index.ts'
import { failureOf, useServer } from '../../fetch/test/server.ts'
import { InvalidPayloadError } from '../../programs/src/errors.ts'
import { createHttpProcessor, type HttpRequest } from '../src/http/processor.ts'

const server = useServer()
let fetch: EgressFetch

beforeAll(() => {
  const targets = { here: { baseUrl: server.url }, nobody: { baseUrl: 'http://127.0.0.1:1' } }
  fetch = egressFetch({ targets, allowUrls: true, urlPorts: [server.port] })
})

afterAll(() => fetch.close())

const run = (data: unknown) =>
  createHttpProcessor(fetch)({ id: '1', queueName: 'http', prefix: 'bull', timestamp: 1_700_000_000_000, data })

test('the answer is the result', async () => {
  server.answer((_, response) => response.writeHead(202, { etag: '"1"' }).end('taken'))
  const data: HttpRequest = {
    ...{ target: 'here', path: '/a', query: { b: ['c', 1, true] }, method: 'PUT' },
    ...{ headers: { accept: 'text/plain' }, text: 'd' },
  }
  expect(await run(data)).toEqual({
    status: 202,
    headers: { etag: '"1"', date: expect.any(String) },
    body: 'taken',
    bodyTruncated: false,
    durationMs: expect.any(Number),
  })
  const [seen] = server.requests
  expect(seen).toMatchObject({ method: 'PUT', url: '/a?b=c&b=1&b=true', body: 'd' })
  expect(seen?.headers['idempotency-key']).toMatch(/^[\da-f]{64}$/)
})

test.each([302, 400, 404, 429, 500])('an answer of %i is thrown as it came', async (status) => {
  server.answer((_, response) => response.writeHead(status).end())
  const failure = await failureOf(run({ target: 'here' }))
  expect(failure).toBeInstanceOf(HttpResponseError)
  expect(failure).toMatchObject({ statusCode: status })
})

test('a broken connection is thrown as it came', async () => {
  expect(await failureOf(run({ target: 'nobody' }))).toBeInstanceOf(RequestFailedError)
})

test.each<[string, unknown, string]>([
  ['nothing', undefined, 'Invalid input: expected object, received undefined'],
  ['a text', 'CANARY', 'Invalid input: expected object, received string'],
  ['a list', ['CANARY'], 'Invalid input: expected object, received array'],
  [
    'another field',
    { target: 'here', CANARY: 1, agent: 2 },
    'expected only target, path, query, url, method, headers, json, text, got 2 other field(s) as well',
  ],
  ['an own __proto__', JSON.parse('{"target":"here","__proto__":{"url":"CANARY"}}'), 'expected only target, path'],
  ['a path that is no text', { target: 'here', path: ['CANARY'] }, 'path: Invalid input: expected string'],
  ['a method in lower case', { target: 'here', method: 'get' }, 'method: Invalid option: expected one of "GET"|'],
  ['a method of proxies', { target: 'here', method: 'CONNECT' }, 'method: Invalid option'],
  ['a header of two values', { target: 'here', headers: { accept: ['CANARY'] } }, 'headers: Invalid input'],
  ['a query in depth', { target: 'here', query: { a: { CANARY: 1 } } }, 'query: Invalid input'],
  ['an unknown target', { target: 'CANARY' }, 'target: expected "here" or "nobody"'],
  ['a path that leads out', { target: 'here', path: '/../CANARY' }, 'path: expected no segment . or ..'],
  ['a header for others', { target: 'here', headers: { authorization: 'CANARY' } }, 'headers: expected only accept, '],
  ['a line break', { target: 'here', headers: { accept: 'a\r\nCANARY: 1' } }, 'headers: accept: expected one line'],
  ['a private address', { url: 'https://127.0.0.1/CANARY' }, 'url: expected port'],
])('%s fails at once, without its data in the reason', async (_, data, problem) => {
  const failure = await failureOf(run(data))
  expect(failure).toBeInstanceOf(UnrecoverableError)
  expect(failure.cause).toBeInstanceOf(InvalidPayloadError)
  expect(failure.message).toContain(`the request was not accepted: ${problem}`)
  expect(failure.message).not.toContain('CANARY')
  expect(server.connections).toBe(0)
})

test('a URL that leads to a private address fails at once', async () => {
  const failure = await failureOf(run({ url: `https://127.0.0.1:${server.port}/` }))
  expect(failure).toBeInstanceOf(UnrecoverableError)
  expect(failure.cause).toMatchObject({ problems: ['url: expected a host whose addresses are all public'] })
  expect(server.connections).toBe(0)
})
