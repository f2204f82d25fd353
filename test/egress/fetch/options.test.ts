import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { type EgressFetchOptions, egressFetch, InvalidFetchOptionsError } from '../../../src/egress/fetch/index.ts'
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
  ['a port', { allowUrls: true, urlPorts: [0] }, 'urlPorts: expected ports from 1 to 65535'],
  ['a time', { allowUrls: true, timeoutMs: 0.5 }, 'timeoutMs: expected whole milliseconds from 1'],
  ['a size', { allowUrls: true, maxResponseBytes: -1 }, 'maxResponseBytes: expected a whole number from 0'],
  ['a length', { allowUrls: true, maxBodyChars: Number.NaN }, 'maxBodyChars: expected a whole number from 0'],
]

test.each(refused)('%s is refused', async (_, options, problem) => {
  const failure = await failureOf((async () => egressFetch({ env, ...options }))())
  expect(failure).toBeInstanceOf(InvalidFetchOptionsError)
  expect(failure).toMatchObject({ message: problem, problems: [problem] })
  expect(inspect(failure)).not.toContain('CANARY')
})

test('everything that is wrong is named', () => {
  const targets = { a: { baseUrl: 'x' }, b: { baseUrl, headers: { host: 'x' } } }
  expect(() => egressFetch({ targets, timeoutMs: 0 })).toThrow(/target "a".*; target "b".*; timeoutMs/)
})
