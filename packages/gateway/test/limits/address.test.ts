import { expect, test } from 'vitest'
import { InvalidInputError } from '../../../../src/limits/index.ts'
import { type AddressOptions, byAddress, callerAddress } from '../../src/limits/address.ts'
import { requestOf } from './support/requests.ts'

const forwarded = (remoteAddress: string | undefined, text?: string) =>
  requestOf({ remoteAddress, headers: text === undefined ? {} : { 'x-forwarded-for': text } })

test.each<
  [
    title: string,
    remote: string | undefined,
    forwarded: string | undefined,
    trustProxy: AddressOptions['trustProxy'],
    key: string | undefined,
  ]
>([
  ['the connection', '203.0.113.7', undefined, undefined, '203.0.113.7'],
  ['nobody is believed who is not trusted', '203.0.113.7', '8.8.8.8', undefined, '203.0.113.7'],
  ['nor where others are', '203.0.113.7', '8.8.8.8', ['10.0.0.0/8'], '203.0.113.7'],
  ['nor by 0 proxies', '203.0.113.7', '8.8.8.8', 0, '203.0.113.7'],
  ['a trusted proxy', '10.0.0.1', '8.8.8.8', ['10.0.0.0/8'], '8.8.8.8'],
  ['by name', '127.0.0.1', '8.8.8.8', ['loopback'], '8.8.8.8'],
  ['within IPv6', '::ffff:127.0.0.1', '::ffff:8.8.8.8', ['loopback'], '8.8.8.8'],
  ['what a caller puts before is his own', '10.0.0.1', '1.1.1.1, 8.8.8.8', ['10.0.0.0/8'], '8.8.8.8'],
  ['also where he names a proxy', '10.0.0.1', '1.1.1.1, 10.0.0.9, 8.8.8.8', ['10.0.0.0/8'], '8.8.8.8'],
  ['several proxies', '10.0.0.1', '1.1.1.1, 8.8.8.8, 10.0.0.9', ['10.0.0.0/8'], '8.8.8.8'],
  ['one proxy by number', '10.0.0.1', '1.1.1.1, 8.8.8.8', 1, '8.8.8.8'],
  ['two proxies by number', '10.0.0.1', '1.1.1.1, 8.8.8.8', 2, '1.1.1.1'],
  ['more proxies than there are', '10.0.0.1', '8.8.8.8', 9, '8.8.8.8'],
  ['a proxy that says nothing', '10.0.0.1', undefined, ['10.0.0.0/8'], '10.0.0.1'],
  ['a proxy that adds the port', '10.0.0.1', '8.8.8.8:1234', 1, '8.8.8.8'],
  ['of IPv6 as well', '10.0.0.1', '[2001:db8::1]:1234', 1, '2001:db8::/64'],
  ['what is no address', '10.0.0.1', 'unknown', 1, undefined],
  ['nor a port', '10.0.0.1', '8.8.8.8:80:80', 1, undefined],
  ['an unknown connection', undefined, '8.8.8.8', undefined, undefined],
  ['a Unix socket behind one proxy', undefined, '8.8.8.8', 1, '8.8.8.8'],
  ['a Unix socket is in no range', undefined, '8.8.8.8', ['loopback'], undefined],
  ['IPv4 within IPv6', '::ffff:203.0.113.7', undefined, undefined, '203.0.113.7'],
  ['the same in hexadecimal', '::ffff:cb00:7107', undefined, undefined, '203.0.113.7'],
  ['IPv6', '2001:db8:1:2:3:4:5:6', undefined, undefined, '2001:db8:1:2::/64'],
  ['IPv6 of one link', 'fe80::1%eth0', undefined, undefined, 'fe80::/64'],
])('%s', (_title, remote, text, trustProxy, key) => {
  expect(byAddress(trustProxy === undefined ? {} : { trustProxy })(forwarded(remote, text))).toBe(key)
})

test.each([
  [1, '8000::/1'],
  [32, '2001:db8::/32'],
  [48, '2001:db8:ffff::/48'],
  [52, '2001:db8:ffff:f000::/52'],
  [64, '2001:db8:ffff:ffff::/64'],
  [127, '2001:db8:ffff:ffff:ffff:ffff:ffff:fffe/127'],
  [128, '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128'],
])('IPv6 by /%d', (ipv6Prefix, key) => {
  const address = ipv6Prefix === 1 ? 'ffff::1' : '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff'
  const keyOf = byAddress({ ipv6Prefix })
  expect(keyOf(requestOf({ remoteAddress: address }))).toBe(key)
  expect(keyOf(requestOf({ remoteAddress: '203.0.113.7' }))).toBe('203.0.113.7')
})

test('the caller’s address is whole where it is no key', () => {
  expect(callerAddress(undefined)(requestOf({ remoteAddress: '2001:db8::1' }))).toBe('2001:db8::1')
})

test.each<[AddressOptions, string]>([
  [{ ipv6Prefix: 0 }, 'ipv6Prefix must be a whole number from 1 to 128; got 0'],
  [{ ipv6Prefix: 129 }, 'got 129'],
  [{ ipv6Prefix: 63.5 }, 'got 63.5'],
  [{ trustProxy: -1 }, 'trustProxy must be a whole number of proxies'],
  [{ trustProxy: ['10.0.0.0/99'] }, 'trustProxy must be a list of addresses'],
  [{ trustProxy: ['proxy.example'] }, 'got ["proxy.example"]'],
  [{ trustProxy: 'loopback' as never }, 'got "loopback"'],
  [{ trustProxy: true as never }, 'got true'],
])('%j is told', (options, message) => {
  expect(() => byAddress(options)).toThrow(message)
  expect(() => byAddress(options)).toThrow(InvalidInputError)
})
