import { ProblemError } from 'sluice-gateway/internal'
import { expect, test } from 'vitest'
import { isLoopbackAddress, isLoopbackHost } from '../../src/access.ts'
import { checkSameOrigin, type Provenance } from '../../src/guard.ts'

const NOTHING: Provenance = {
  fetchSite: undefined,
  origin: undefined,
  host: 'example.org:8080',
  hasBearer: false,
  hasCookie: true,
}
const PROGRAM = { hasBearer: true, hasCookie: false }

test.each<[string, Partial<Provenance>, boolean]>([
  ['the page itself', { fetchSite: 'same-origin' }, true],
  ['the page itself, whatever its origin says', { fetchSite: 'same-origin', origin: 'null' }, true],
  ['another host of the site', { fetchSite: 'same-site' }, false],
  ['another site', { fetchSite: 'cross-site', origin: 'http://example.org:8080' }, false],
  ['another site, with a token', { fetchSite: 'cross-site', ...PROGRAM }, false],
  ['the address bar', { fetchSite: 'none' }, false],
  ['a program with a token that says none', { fetchSite: 'none', ...PROGRAM }, true],
  ['a token and a cookie that says none', { fetchSite: 'none', hasBearer: true, hasCookie: true }, false],
  ['an old browser on the page', { origin: 'http://example.org:8080' }, true],
  ['an old browser on the page, with TLS before us', { origin: 'https://example.org:8080' }, true],
  ['the default port, told by one side', { origin: 'http://example.org', host: 'example.org:80' }, true],
  ['another port', { origin: 'http://example.org:8081' }, false],
  ['another host', { origin: 'http://evil.example' }, false],
  ['a host that begins alike', { origin: 'http://example.org:8080.evil.example' }, false],
  ['a host behind an at-sign', { origin: 'http://example.org:8080@evil.example' }, false],
  ['an opaque origin', { origin: 'null' }, false],
  ['a file', { origin: 'file://' }, false],
  ['an origin that is none', { origin: 'nonsense' }, false],
  ['no host', { origin: 'http://example.org:8080', host: undefined }, false],
  ['nothing told', {}, false],
  ['a program with a token', PROGRAM, true],
  ['a token beside a cookie', { hasBearer: true, hasCookie: true }, false],
])('%s', (_name, told, isTaken) => {
  const check = () => checkSameOrigin({ ...NOTHING, ...told })
  if (isTaken) expect(check).not.toThrow()
  else expect(check).toThrow(ProblemError)
})

test.each([
  ['localhost', true],
  ['localhost:3030', true],
  ['sluice.localhost:3030', true],
  ['127.0.0.1:3030', true],
  ['127.1.2.3', true],
  ['[::1]:3030', true],
  ['example.org', false],
  ['localhost.example.org', false],
  ['127.0.0.1.example.org', false],
  ['notlocalhost', false],
  ['10.0.0.1', false],
  ['evil.example/localhost', false],
  ['', false],
  [undefined, false],
])('a host %s is this machine: %s', (host, isOurs) => {
  expect(isLoopbackHost(host)).toBe(isOurs)
})

test.each([
  ['127.0.0.1', true],
  ['::ffff:127.0.0.1', true],
  ['::1', true],
  ['10.0.0.1', false],
  ['::', false],
  ['2001:db8::1', false],
  [undefined, false],
])('an address %s is this machine: %s', (address, isOurs) => {
  expect(isLoopbackAddress(address)).toBe(isOurs)
})
