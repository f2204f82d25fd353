import { describe, expect, test } from 'vitest'
import { InvalidRequestError, type Lookup, RefusedAddressError } from '../src/index.ts'
import { useFetches } from './fetches.ts'
import { failureOf, useServer } from './server.ts'

const server = useServer()
const open = useFetches()
/** Not assigned to anybody: nothing answers there. */
const NOBODY = '2d00::1'

function openForUrls(lookup?: Lookup) {
  return open({ allowUrls: true, urlPorts: [server.port], timeoutMs: 5000, lookup })
}

const resolvingTo =
  (...addresses: string[]): Lookup =>
  async () =>
    addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))

test('the server counts connections', async () => {
  await open({ targets: { here: { baseUrl: server.url } } })({ target: 'here' })
  expect(server.connections).toBe(1)
})

// Fault table, row 29.
describe('no connection is made to', () => {
  test.each([
    '127.0.0.1',
    '0x7f000001',
    '0x7f.1',
    '2130706433',
    '127.1',
    '0177.0.0.1',
    '017700000001',
    '１２７．０．０．１',
    '127。0。0。1',
    '%31%32%37.0.0.1',
    '127.0.0.1.',
    '[::1]',
    '[::ffff:7f00:1]',
    '[::ffff:127.0.0.1]',
    '[::127.0.0.1]',
    '[64:ff9b::7f00:1]',
    '[64:ff9b:1::7f00:1]',
    '[2002:7f00:1::]',
    '[2001::7f00:1]',
    'localhost',
    'LOCALHOST',
    'ｌocalhost',
    '169.254.169.254',
    '[fd00:ec2::254]',
    '100.64.0.1',
    '10.0.0.1',
    '192.168.0.1',
    '172.16.0.1',
    '[fd00::1]',
    '[fe80::1]',
    '0.0.0.0',
    '0',
    '[::]',
    '255.255.255.255',
    '224.0.0.1',
  ])('https://%s', async (host) => {
    const failure = await failureOf(openForUrls()({ url: `https://${host}:${server.port}/` }))
    expect(failure).toBeInstanceOf(RefusedAddressError)
    expect(server.connections).toBe(0)
  })

  test.each([
    ['127.0.0.1.nip.io', ['127.0.0.1']],
    ['7f000001.nip.io', ['127.0.0.1']],
    ['localhost.', ['127.0.0.1', '::1']],
    ['metadata.example', ['169.254.169.254']],
    ['mixed.example', ['1.1.1.1', '127.0.0.1']],
    ['mapped.example', ['::ffff:127.0.0.1']],
    ['nat64.example', ['64:ff9b::7f00:1']],
    ['empty.example', []],
  ])('%s, which resolves to %j', async (host, addresses) => {
    const failure = await failureOf(openForUrls(resolvingTo(...addresses))({ url: `https://${host}:${server.port}/` }))
    expect(failure).toBeInstanceOf(RefusedAddressError)
    expect(failure.message).not.toContain(host)
    expect(server.connections).toBe(0)
  })

  test('a name that answers public first and private second', async () => {
    let lookups = 0
    const rebinding: Lookup = async () => {
      lookups += 1
      return [lookups === 1 ? { address: NOBODY, family: 6 } : { address: '127.0.0.1', family: 4 }]
    }
    const fetch = open({ allowUrls: true, urlPorts: [server.port], timeoutMs: 1000, lookup: rebinding })
    const url = `https://rebind.example:${server.port}/`
    const first = await failureOf(fetch({ url }))
    expect(first).not.toBeInstanceOf(RefusedAddressError)
    expect(lookups).toBe(1)
    expect(await failureOf(fetch({ url }))).toBeInstanceOf(RefusedAddressError)
    expect([lookups, server.connections]).toEqual([2, 0])
  })
})

test.each([
  ['http', 'http://example.com/'],
  ['another scheme', 'file:///etc/passwd'],
  ['a scheme of undici', 'unix:///var/run/docker.sock'],
  ['a user', 'https://user@example.com/'],
  ['a password', 'https://:password@example.com/'],
  ['another port', 'https://example.com:6379/'],
  ['a backslash', 'https:\\\\example.com\\'],
  ['a backslash before the host', 'https://example.com\\@127.0.0.1/'],
  ['a line break', 'https://example.com/\r\nx: y'],
  ['a tab in the host', 'https://exam\tple.com/'],
  ['a space', ' https://example.com/'],
  ['no host', 'https://'],
  ['no URL', 'example.com'],
  ['nothing', ''],
])('a URL with %s is refused without a lookup', async (_, url) => {
  const never: Lookup = () => expect.unreachable()
  const failure = await failureOf(open({ allowUrls: true, lookup: never })({ url }))
  expect(failure).toBeInstanceOf(InvalidRequestError)
  expect(failure.message).toMatch(/^the request was not sent: url: expected /)
})

test('the default port is allowed only where it is listed', async () => {
  const failure = await failureOf(openForUrls()({ url: 'https://example.com/' }))
  expect(failure.message).toBe(`the request was not sent: url: expected port ${server.port}`)
})

test('URLs are refused unless they are allowed', async () => {
  const fetch = open({ targets: { here: { baseUrl: server.url } } })
  expect((await failureOf(fetch({ url: 'https://example.com/' }))).message).toContain('URLs are not allowed here')
})

test('a lookup that never answers ends with the time limit', async () => {
  const hanging: Lookup = () => new Promise(() => undefined)
  const fetch = open({ allowUrls: true, timeoutMs: 50, lookup: hanging })
  const failure = await failureOf(fetch({ url: 'https://slow.example/secret?token=1' }))
  expect(failure.message).toBe('POST to https://slow.example was not answered within 50 ms')
})
