import { describe, expect, test } from 'vitest'
import type { EgressRequest } from '../src/index.ts'
import { InvalidRequestError } from '../src/index.ts'
import { readOptions } from '../src/options.ts'
import { checkRequest } from '../src/request.ts'

const settings = readOptions({
  targets: {
    crm: { baseUrl: 'https://api.example/v1', headers: { authorization: { env: 'TOKEN', prefix: 'Bearer ' } } },
    narrow: {
      baseUrl: 'https://narrow.example',
      headers: { 'X-Fixed': 'fixed' },
      jobHeaders: ['X-Source', 'x-fixed'],
      methods: ['PUT'],
      idempotencyHeader: 'PayPal-Request-Id',
    },
  },
  env: { TOKEN: 'the-token' },
})
const job = { id: '7', queueName: 'http', prefix: 'bull', timestamp: 1_700_000_000_000 }

const check = (request: EgressRequest, asking: typeof job | undefined = job) => checkRequest(settings, request, asking)

function problemsOf(request: EgressRequest): readonly string[] {
  try {
    check(request)
  } catch (error) {
    if (error instanceof InvalidRequestError) return error.problems
    throw error
  }
  return []
}

test('a request carries what the target and the job say', () => {
  const request = { target: 'crm', path: '/contacts', query: { a: 1 }, headers: { Accept: 'text/csv' }, json: { b: 2 } }
  const { url, ...rest } = check(request)
  expect(url.href).toBe('https://api.example/v1/contacts?a=1')
  expect(rest).toEqual({
    what: 'POST to target "crm"',
    method: 'POST',
    headers: {
      'user-agent': expect.stringMatching(/^sluice\/\d/),
      'content-type': 'application/json',
      accept: 'text/csv',
      authorization: 'Bearer the-token',
      'accept-encoding': 'identity',
      'idempotency-key': expect.stringMatching(/^[\da-f]{64}$/),
    },
    body: '{"b":2}',
    free: false,
    secrets: ['the-token'],
  })
})

test.each<[unknown, string]>([
  [undefined, 'expected an object with target, path, query, url, method, headers, json, text'],
  ['crm', 'expected an object with target, path, query, url, method, headers, json, text'],
  [{ target: 'crm', body: 'a' }, 'expected only target, path, query, url, method, headers, json, text'],
  [{ target: 5 }, 'target: expected a text'],
  [{ target: 'crm', path: 5 }, 'path: expected a text'],
  [{ target: 'crm', query: 'a=b' }, 'query: expected an object of parameters'],
  [{ target: 'crm', headers: ['a'] }, 'headers: expected an object of texts'],
  [{ target: 'crm', text: 5 }, 'text: expected a text'],
  [{ target: 'crm', json: { a: 1n } }, 'json: expected what JSON can hold'],
  [{ target: 'crm', json: () => 1 }, 'json: expected what JSON can hold'],
])('a request that is %o is refused', (request, problem) => {
  expect(problemsOf(request as EgressRequest)).toEqual([problem])
})

describe('the body', () => {
  test.each<[EgressRequest, string | undefined, string | undefined]>([
    [{ json: null }, 'null', 'application/json'],
    [{ json: [] }, '[]', 'application/json'],
    [{ json: 1, headers: { 'Content-Type': 'application/vnd.api+json' } }, '1', 'application/vnd.api+json'],
    [{ text: 'a=b' }, 'a=b', 'text/plain; charset=utf-8'],
    [
      { text: 'a=b', headers: { 'content-type': 'application/x-www-form-urlencoded' } },
      'a=b',
      'application/x-www-form-urlencoded',
    ],
    [{}, undefined, undefined],
  ])('of %j', (part, body, contentType) => {
    const { body: came, headers } = check({ target: 'crm', ...part })
    expect([came, headers['content-type']]).toEqual([body, contentType])
  })
})

describe('the idempotency key', () => {
  const keyOf = (asking: typeof job) => check({ target: 'crm' }, asking).headers['idempotency-key']

  test('is the same for each attempt of a job, and of no other job', () => {
    expect(keyOf({ ...job })).toBe(keyOf(job))
    const others = [{ id: '8' }, { queueName: 'other' }, { prefix: 'other' }, { timestamp: 1 }]
    expect(new Set(others.map((other) => keyOf({ ...job, ...other }))).add(keyOf(job)).size).toBe(5)
  })

  test('goes with what has an effect, under the name that the target gives it', () => {
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'] as const) {
      expect(check({ target: 'crm', method }).headers).toHaveProperty('idempotency-key')
    }
    for (const method of ['GET', 'HEAD'] as const) {
      expect(check({ target: 'crm', method }).headers).not.toHaveProperty('idempotency-key')
    }
    const { headers } = check({ target: 'narrow', method: 'PUT' })
    expect(headers['paypal-request-id']).toBe(keyOf(job))
    expect(headers).not.toHaveProperty('idempotency-key')
    expect(checkRequest(settings, { target: 'crm' }, undefined).headers).not.toHaveProperty('idempotency-key')
  })
})

describe('a job may not set', () => {
  test.each([
    'authorization',
    'Authorization',
    'AUTHORIZATION ',
    'proxy-authorization',
    'cookie',
    'host',
    'content-length',
    'transfer-encoding',
    'connection',
    'keep-alive',
    'te',
    'trailer',
    'upgrade',
    'expect',
    'accept-encoding',
    'forwarded',
    'x-forwarded-for',
    'idempotency-key',
    'x-anything',
    'user-agent',
    '__proto__',
    'constructor',
    'accept\r\nhost',
    'accept:',
    '',
  ])('the header %j', (name) => {
    const headers = Object.fromEntries([[name, 'x']])
    expect(problemsOf({ target: 'crm', headers })).toEqual([expect.stringMatching(/^headers: expected only accept, /)])
  })

  test('a header that the target sets, though it is on its list', () => {
    expect(problemsOf({ target: 'narrow', method: 'PUT', headers: { 'x-fixed': 'other' } })).toEqual([
      'headers: expected only x-source',
    ])
    expect(check({ target: 'narrow', method: 'PUT', headers: { 'X-SOURCE': 'a' } }).headers).toMatchObject({
      'x-source': 'a',
      'x-fixed': 'fixed',
    })
  })
})

test.each([
  'a\r\nx-injected: 1',
  'a\nx-injected: 1',
  'a\rx-injected: 1',
  'a\0b',
  'a\u000bb',
  'a\u2028b',
  '\r\n\r\nGET / HTTP/1.1',
  'a\u560d\u560ab',
  'ż',
])('the header value %j is refused', (value) => {
  expect(problemsOf({ target: 'crm', headers: { accept: value } })).toEqual([
    'headers: accept: expected one line of Latin-1 text',
  ])
})

test.each<[string, EgressRequest, string]>([
  ['no target', {}, 'target: expected "crm" or "narrow"'],
  ['an unknown target', { target: 'CANARY' }, 'target: expected "crm" or "narrow"'],
  ['a name of every object', { target: 'constructor' }, 'target: expected "crm" or "narrow"'],
  ['a method that the target does not take', { target: 'narrow' }, 'method: expected PUT'],
  [
    'an unknown method',
    { target: 'crm', method: 'CONNECT' as 'PUT' },
    'method: expected GET, HEAD, POST, PUT, PATCH, DELETE',
  ],
  ['json and text', { target: 'crm', json: 1, text: 'a' }, 'expected json or text, got both'],
  ['a body with GET', { target: 'crm', method: 'GET', json: 1 }, 'expected no json and no text with GET and HEAD'],
  ['a header twice', { target: 'crm', headers: { accept: 'a', Accept: 'b' } }, 'headers: accept is given twice'],
  ['a path that leads out', { target: 'crm', path: '/../CANARY' }, 'path: expected no segment . or ..'],
  ['a url', { target: 'crm', url: 'https://a.example/' }, 'url: expected a target: URLs are not allowed here'],
])('%s is refused', (_, request, problem) => {
  expect(problemsOf(request)).toEqual([problem])
})

test('a url with a target, a path or a query is refused where URLs are allowed', () => {
  const free = readOptions({ allowUrls: true })
  const url = 'https://a.example/'
  for (const also of [{ target: 'crm' }, { path: '/a' }, { query: {} }]) {
    expect(() => checkRequest(free, { url, ...also }, job)).toThrow('expected a url or a target')
  }
  expect(checkRequest(free, { url: `${url}b?c=d#e` }, job)).toMatchObject({
    free: true,
    what: 'POST to https://a.example',
  })
  expect(() => checkRequest(free, { target: 'crm' }, job)).toThrow('expected a url')
})
