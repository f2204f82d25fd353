import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Answer } from '../../../src/egress/answer.ts'
import { answerOf } from '../../../src/egress/answers/answer-of.ts'

const at = { receivedAtMs: 1_800_000_000_000, latencyMs: 12 }

/** Every field that is looked at, and some that are not. */
const NAMES = [
  ...['cause', 'errors', 'response', 'headers', 'status', 'statusCode', 'body', 'data', 'error', 'raw', 'message'],
  ...['name', 'code', 'url', 'request', 'res', 'responseUrl', 'config', 'options', 'method', '$metadata', '$response'],
  ...['httpStatusCode', '$retryable', 'throttling', 'severity', 'sqlState', 'errno', 'responseCode', 'command'],
  ...['details', 'metadata', 'getMap', 'toJSON', 'other'],
]

const fail = () => {
  throw new Error('hostile')
}
const throwingGetter = (name: string) => Object.defineProperty({}, name, { get: fail, enumerable: true })
const revoked = () => {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}
function* endless() {
  for (;;) yield ['a', 'b']
}
const circle = () => {
  const error = new Error('circle') as Error & { errors: unknown[] }
  error.cause = error
  error.errors = [error, { cause: error }]
  return error
}

/** Made inside the property: the generators look into values themselves. */
const HOSTILE: readonly (() => unknown)[] = [
  ...NAMES.map((name) => () => throwingGetter(name)),
  ...[revoked, circle, endless, () => fail, () => Buffer.from('x'), () => new Headers({ a: 'b' })],
  () => new Proxy({}, { get: fail, getPrototypeOf: fail, ownKeys: fail, has: fail }),
  () => new Proxy([], { get: fail, getPrototypeOf: fail, ownKeys: fail }),
  () => Proxy.revocable([], {}).proxy,
  () => Object.create(null),
]

type Tree =
  | { readonly is: 'value'; readonly value: unknown }
  | { readonly is: 'hostile'; readonly which: number }
  | { readonly is: 'list'; readonly of: readonly Tree[] }
  | { readonly is: 'object'; readonly of: readonly [string, Tree][] }
  | { readonly is: 'error'; readonly of: readonly [string, Tree][] }

const values = fc.oneof(
  fc.string(),
  fc.constantFrom(200, 429, 503, 8, 14, 454, 1040, -1, Number.NaN, 1e9, 10n, Symbol('s'), null, undefined),
  fc.constantFrom('EENVELOPE', 'ETIMEDOUT', '53300', 'ERROR', 'timeout expired', '454 4.7.0 x', 'https://a.example/'),
  fc.constant('['.repeat(60_000)),
)

const { tree } = fc.letrec<{ tree: Tree }>((tie) => {
  const fields = fc.array(fc.tuple(fc.constantFrom(...NAMES), tie('tree')), { maxLength: 8 })
  return {
    tree: fc.oneof(
      { depthSize: 'medium' },
      values.map((value): Tree => ({ is: 'value', value })),
      fc.nat(HOSTILE.length - 1).map((which): Tree => ({ is: 'hostile', which })),
      fc.array(tie('tree'), { maxLength: 4 }).map((of): Tree => ({ is: 'list', of })),
      fields.map((of): Tree => ({ is: 'object', of })),
      fields.map((of): Tree => ({ is: 'error', of })),
    ),
  }
})

function grown(from: Tree): unknown {
  if (from.is === 'value') return from.value
  if (from.is === 'hostile') return HOSTILE[from.which]?.()
  if (from.is === 'list') return from.of.map(grown)
  const fields = Object.fromEntries(from.of.map(([name, part]) => [name, grown(part)]))
  return from.is === 'object' ? fields : Object.assign(new Error('grown'), fields)
}

function expectSound(answer: Answer | undefined): void {
  if (answer === undefined) return
  expect(['http', 'smtp', 'sql', 'other']).toContain(answer.protocol)
  for (const text of [answer.text, answer.name, answer.code]) {
    expect(typeof text).toBe('string')
    expect(text.length).toBeLessThanOrEqual(4002)
  }
  if (answer.protocol !== 'http') return
  expect(answer.status).toBeGreaterThanOrEqual(100)
  expect(Object.keys(answer.headers).length).toBeLessThanOrEqual(200)
  expect(Object.values(answer.headers).every((line) => typeof line === 'string')).toBe(true)
}

test('nothing that is thrown breaks it, and there is an answer for all of it', () => {
  fc.assert(
    fc.property(tree, (planted) => {
      const answer = answerOf({ threw: grown(planted) }, at)
      expect(answer?.failed).toBe(true)
      expectSound(answer)
    }),
    { numRuns: 1000 },
  )
})

test('nothing that is returned breaks it', () => {
  fc.assert(
    fc.property(tree, (planted) => {
      const answer = answerOf({ returned: grown(planted) }, at)
      expectSound(answer)
      expect(answer === undefined || answer.protocol === 'http').toBe(true)
    }),
    { numRuns: 1000 },
  )
})

/** What each library has, with everything in it that is looked at. */
const WHOLE: readonly object[] = [
  {
    status: 429,
    headers: { a: 'b', many: ['c', 'd'] },
    body: {},
    url: 'https://a.example/',
    message: 'x',
    name: 'x',
    code: 'x',
  },
  {
    response: { status: 429, headers: [['a', 'b']], data: [], request: { res: { responseUrl: 'https://a.example/' } } },
  },
  { statusCode: 429, headers: ['a', 'b'], error: { error: {} }, raw: {}, config: { method: 'get' } },
  {
    $metadata: { httpStatusCode: 429 },
    $response: { headers: new Map([['a', 'b']]) },
    $retryable: { throttling: true },
  },
  { code: 8, details: 'x', metadata: { getMap: () => ({}), toJSON: () => ({ a: ['b'] }) } },
  { code: 'EMESSAGE', responseCode: 421, response: '421 4.7.0 x', command: 'DATA', message: '421 4.7.0 x' },
  { code: '53300', severity: 'FATAL', message: 'x' },
  { errno: 1040, sqlState: '08004', code: 'x' },
  { cause: { cause: { status: 429 } }, errors: [{ status: 429 }] },
]

/** Copies of it, in each of which one part is replaced. */
function* planted(whole: unknown, part: unknown): Generator<unknown> {
  yield part
  if (typeof whole !== 'object' || whole === null || whole instanceof Map) return
  for (const [name, value] of Object.entries(whole)) {
    for (const replaced of planted(value, part)) {
      yield Array.isArray(whole) ? whole.with(Number(name), replaced) : { ...whole, [name]: replaced }
    }
  }
}

test.each(WHOLE)('hostile parts at every place of %o', (whole) => {
  for (const make of HOSTILE) {
    for (const value of planted(whole, make())) {
      expectSound(answerOf({ threw: value }, at))
      expectSound(answerOf({ returned: value }, at))
    }
  }
})

test('endless headers and long texts are cut', () => {
  const long = 'x'.repeat(1_000_000)
  const answer = answerOf({ threw: { status: 429, headers: endless(), message: long, name: long, code: long } }, at)
  expectSound(answer)
  expect(answer).toMatchObject({ protocol: 'http', headers: { a: expect.stringContaining('b, b') } })
})

test('a chain of causes without end, and a circle, end', () => {
  const endlessCause = (): object => ({
    message: 'deeper',
    get cause() {
      return endlessCause()
    },
  })
  expect(answerOf({ threw: endlessCause() }, at)).toMatchObject({ protocol: 'other', text: 'deeper' })
  expect(answerOf({ threw: circle() }, at)).toMatchObject({ protocol: 'other', text: 'circle' })
})

test('what no library throws is an answer of no protocol', () => {
  expect(answerOf({ threw: undefined }, at)).toEqual({ protocol: 'other', failed: true, text: '', name: '', code: '' })
  expect(answerOf({ threw: 'no' }, at)).toEqual({ protocol: 'other', failed: true, text: 'no', name: '', code: '' })
})
