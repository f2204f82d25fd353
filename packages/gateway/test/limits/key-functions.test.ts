import { expect, test } from 'vitest'
import { InvalidInputError } from '../../../../src/limits/index.ts'
import { encodeKey } from '../../../../src/limits/limit-keys.ts'
import { byAddress } from '../../src/limits/address.ts'
import { ANONYMOUS, byApiKey, byUser, composeKeys, hashOfApiKey, type KeyOf } from '../../src/limits/key-functions.ts'
import { requestOf } from './support/requests.ts'

test('an API key is known by its hash, whatever is in it', () => {
  const apiKey = 'sk_live_0123456789'
  const key = byApiKey()(requestOf({ headers: { 'x-api-key': apiKey } }))
  expect(key).toBe(hashOfApiKey(apiKey))
  expect(key).toMatch(/^[\w-]{43}$/)
  expect(encodeKey(key as string)).toBe(key)
  expect(byApiKey()(requestOf({ headers: { 'x-api-key': 'x'.repeat(9000) } }))).toMatch(/^[\w-]{43}$/)
  expect(byApiKey({ header: 'Authorization' })(requestOf({ headers: { authorization: apiKey } }))).toBe(key)
})

test.each([{}, { 'x-api-key': '' }])('without an API key it is nobody’s: %j', (headers) => {
  expect(byApiKey()(requestOf({ headers }))).toBeUndefined()
})

test('a user is who a middleware found out, or a function says', async () => {
  expect(byUser()(requestOf({ identity: { name: 'joe' } }))).toBe('joe')
  expect(byUser()(requestOf())).toBeUndefined()
  expect(await byUser(async ({ url }) => url)(requestOf({ url: '/joe' }))).toBe('/joe')
})

test('keys of several parts: no two of them meet', async () => {
  const part =
    (key: ReturnType<KeyOf>): KeyOf =>
    () =>
      key
  const encoded = async (...keys: ReturnType<KeyOf>[]) => {
    const key = await composeKeys(keys.map(part))(requestOf())
    return key === undefined ? undefined : encodeKey(key)
  }
  expect(await composeKeys([byUser(), byAddress()])(requestOf({ identity: { name: 'joe' } }))).toEqual([
    'joe',
    '203.0.113.7',
  ])
  const all = await Promise.all([
    encoded('a', 'b', 'c'),
    encoded(['a', 'b'], 'c'),
    encoded('a', ['b', 'c']),
    encoded(undefined, 'a'),
    encoded('a', undefined),
    encoded('a', Promise.resolve('b')),
    encoded('a', 7),
    encoded('a:b', 'c'),
  ])
  expect(new Set(all).size).toBe(all.length)
  expect(await encoded(undefined, undefined)).toBeUndefined()
})

test('nobody is no user', () => {
  expect(encodeKey(ANONYMOUS)).not.toBe(encodeKey('nobody'))
  expect(() => new Headers({ 'x-user': ANONYMOUS })).toThrow()
})

test.each([
  [
    'a field that is none',
    () => byApiKey({ header: 'x api key' }),
    'header must be the name of a header field; got "x api key"',
  ],
  ['no field', () => byApiKey({ header: '' }), 'got ""'],
  ['no function', () => byUser('joe' as never), 'byUser must be a function; got "joe"'],
  ['no parts', () => composeKeys([]), 'composeKeys needs at least one function'],
  [
    'a part that is none',
    () => composeKeys([byUser(), undefined as never]),
    'composeKeys must be a function; got undefined',
  ],
])('%s is told', (_title, make, message) => {
  expect(make).toThrow(message)
  expect(make).toThrow(InvalidInputError)
})
