import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { type EgressFetchOptions, egressFetch, InvalidFetchOptionsError } from '../src/index.ts'
import { failureOf } from './server.ts'

const baseUrl = 'https://api.example/v1'
const env = { TOKEN: 'CANARY-1', BROKEN: 'CANARY-2\r\nx: y' }

const refused: [string, EgressFetchOptions, string][] = [
  ['nothing to reach', {}, 'expected at least one target'],
  ...['ftp://api.example', 'api.example', '', 'https://user:pw@api.example', `${baseUrl}?a=b`, `${baseUrl}#a`].map(
    (wrong): [string, EgressFetchOptions, string] => [
      `the base URL ${wrong}`,
      { targets: { crm: { baseUrl: wrong } } },
      'target "crm": baseUrl: expected an http:// or https:// URL without credentials, query and fragment',
    ],
  ),
  ...['host', 'Content-Length', 'transfer-encoding', 'connection', 'accept-encoding', 'a b', 'a:b', 'ä', ''].map(
    (name): [string, EgressFetchOptions, string] => [
      `the header ${name} of a target`,
      { targets: { crm: { baseUrl, headers: { [name]: 'x' } } } },
      `target "crm": headers: ${name}: expected a header that a target may set`,
    ],
  ),
  [
    'a line break in a header of a target',
    { targets: { crm: { baseUrl, headers: { 'x-a': 'b\r\nx: y' } } } },
    'target "crm": headers: x-a: expected one line of Latin-1 text',
  ],
  [
    'a secret that is not set',
    { targets: { crm: { baseUrl, headers: { authorization: { env: 'NOT_SET' } } } } },
    'target "crm": headers: authorization: expected a value in the environment variable NOT_SET',
  ],
  [
    'a secret of two lines',
    { targets: { crm: { baseUrl, headers: { authorization: { env: 'BROKEN' } } } } },
    'target "crm": headers: authorization: expected one line of Latin-1 text',
  ],
  ...['Authorization', 'cookie', 'proxy-authorization', 'x-forwarded-for', 'host', 'te', 'upgrade'].map(
    (name): [string, EgressFetchOptions, string] => [
      `the header ${name} for jobs`,
      { targets: { crm: { baseUrl, jobHeaders: [name] } } },
      `target "crm": jobHeaders: ${name.toLowerCase()}: expected a header that a job may set`,
    ],
  ),
  [
    'an idempotency header of the client',
    { targets: { crm: { baseUrl, idempotencyHeader: 'Host' } } },
    'target "crm": idempotencyHeader: expected a header that a target may set',
  ],
  ...[null, [], 'crm'].map((options): [string, EgressFetchOptions, string] => [
    `${JSON.stringify(options)} for options`,
    options as never,
    'expected an object with targets, allowUrls, urlPorts, timeoutMs, maxResponseBytes, maxBodyChars, env, lookup',
  ]),
  [
    'an option that is spelled wrong',
    { allowUrls: true, timeout: 5 } as never,
    'expected only targets, allowUrls, urlPorts, timeoutMs, maxResponseBytes, maxBodyChars, env, lookup',
  ],
  ['targets in a list', { targets: [] as never }, 'targets: expected an object of targets by their names'],
  ['URLs allowed by a text', { allowUrls: 'no' as never }, 'allowUrls: expected true or false'],
  ['a port beside the list', { allowUrls: true, urlPorts: 443 as never }, 'urlPorts: expected ports from 1 to 65535'],
  ['a lookup that is none', { allowUrls: true, lookup: 5 as never }, 'lookup: expected a function'],
  ...(
    [
      [null, 'expected an object with baseUrl, headers, jobHeaders, methods, idempotencyHeader'],
      [{ baseUrl, header: {} }, 'expected only baseUrl, headers, jobHeaders, methods, idempotencyHeader'],
      [{ baseUrl, methods: ['get'] }, 'methods: expected a list of GET, HEAD, POST, PUT, PATCH, DELETE'],
      [{ baseUrl, jobHeaders: 'accept' }, 'jobHeaders: expected a list of header names'],
      [
        { baseUrl, headers: { 'x-a': 5 } },
        'headers: x-a: expected a text, or { env } for a secret, perhaps with a prefix',
      ],
    ] as const
  ).map(([target, problem]): [string, EgressFetchOptions, string] => [
    `the target ${JSON.stringify(target)}`,
    { targets: { crm: target as never } },
    `target "crm": ${problem}`,
  ]),
  ['a port', { allowUrls: true, urlPorts: [0] }, 'urlPorts: expected ports from 1 to 65535'],
  ['a time', { allowUrls: true, timeoutMs: 0.5 }, 'timeoutMs: expected whole milliseconds from 1'],
  ['a size', { allowUrls: true, maxResponseBytes: -1 }, 'maxResponseBytes: expected a whole number from 0'],
  ['a length', { allowUrls: true, maxBodyChars: Number.NaN }, 'maxBodyChars: expected a whole number from 0'],
]

const isPlain = (options: unknown) => typeof options === 'object' && options !== null && !Array.isArray(options)

test.each(refused)('%s is refused', async (_, options, problem) => {
  const failure = await failureOf((async () => egressFetch(isPlain(options) ? { env, ...options } : options))())
  expect(failure).toBeInstanceOf(InvalidFetchOptionsError)
  expect(failure).toMatchObject({ message: problem, problems: [problem] })
  expect(inspect(failure)).not.toContain('CANARY')
})

test('everything that is wrong is named', () => {
  const targets = { a: { baseUrl: 'x' }, b: { baseUrl, headers: { host: 'x' } } }
  expect(() => egressFetch({ targets, timeoutMs: 0 })).toThrow(/target "a".*; target "b".*; timeoutMs/)
})
