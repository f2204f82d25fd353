import { describe, expect, test } from 'vitest'
import { urlBelow } from '../src/target.ts'

const base = new URL('https://api.example/v1/')

function read(path: string, query = {}, below = base) {
  const problems: string[] = []
  return { url: urlBelow(below, path, query, problems).href, problems }
}

test.each([
  ['', 'https://api.example/v1/'],
  ['/', 'https://api.example/v1/'],
  ['/charges', 'https://api.example/v1/charges'],
  ['/charges/', 'https://api.example/v1/charges/'],
  ['/a//b', 'https://api.example/v1/a//b'],
  ['/projects/group%2Fname/issues', 'https://api.example/v1/projects/group%2Fname/issues'],
  ['/jobs/1:cancel', 'https://api.example/v1/jobs/1:cancel'],
  ['/https://evil.example/', 'https://api.example/v1/https://evil.example/'],
  ['/a b', 'https://api.example/v1/a%20b'],
  ['/ä', 'https://api.example/v1/%C3%A4'],
  ['/．．/a', 'https://api.example/v1/%EF%BC%8E%EF%BC%8E/a'],
  ['/..a/...', 'https://api.example/v1/..a/...'],
  ['/@evil.example', 'https://api.example/v1/@evil.example'],
])('the path %j is below the base', (path, href) => {
  expect(read(path)).toEqual({ url: href, problems: [] })
})

test.each([
  '..',
  '../admin',
  'charges',
  'https://evil.example/',
  'HTTPS:evil.example',
  'javascript:alert(1)',
  '//evil.example/',
  '///evil.example/',
  '@evil.example/',
  '.evil.example/',
  ':8080/',
  '\\\\evil.example/',
  '/\\evil.example/',
  '/a\\..\\b',
  '/..',
  '/../admin',
  '/a/../../admin',
  '/./a',
  '/.',
  '/%2e%2e/admin',
  '/%2E%2e/admin',
  '/.%2e/admin',
  '/%2e/admin',
  '/..%2fadmin',
  '/..%5cadmin',
  '/a%5c..%5cadmin',
  '/%252e%252e/admin',
  '/%25252e%25252e/admin',
  '/..%252fadmin',
  '/%25252525252e/admin',
  '/..;/admin',
  '/..;a=b/admin',
  '/%2e%2e%3b/admin',
  '/a?b=c',
  '/a#b',
  '/a\r\nhost: evil.example',
  '/a\nb',
  '/.\t./admin',
  '/.\n./admin',
  '/a\0b',
  '/a%00b',
  '/a%0d%0ab',
  '/a%250d%250ab',
  '/a\u0085b',
  '/a%zz',
  '/a%',
  '/%ff',
  `/${'a'.repeat(4096)}`,
])('the path %j is refused', (path) => {
  const { url, problems } = read(path)
  expect(problems).toEqual([expect.stringMatching(/^path: expected /)])
  expect(url).toBe(base.href)
})

describe('a query', () => {
  test('is encoded, so that nothing in it ends it', () => {
    const query = { q: 'a&b=c#d?e f', many: ['x', 2], yes: true, '\r\n': '\r\n' }
    expect(read('/a', query)).toEqual({
      url: 'https://api.example/v1/a?q=a%26b%3Dc%23d%3Fe+f&many=x&many=2&yes=true&%0D%0A=%0D%0A',
      problems: [],
    })
  })

  test.each([{ a: null }, { a: {} }, { a: [['b']] }])('%j is refused', (query) => {
    expect(read('/a', query).problems).toEqual([expect.stringMatching(/^query: expected /)])
  })
})

test('a base without a path and one without a slash at its end keep their paths', () => {
  expect(read('/a', {}, new URL('https://api.example')).url).toBe('https://api.example/a')
  expect(read('/a', {}, new URL('https://api.example/v1')).url).toBe('https://api.example/v1/a')
  expect(read('', {}, new URL('https://api.example/v1')).url).toBe('https://api.example/v1')
})
