import { once } from 'node:events'
import { request } from 'node:http'
import { fastify } from 'fastify'
import { expect, onTestFinished, test } from 'vitest'
import { InvalidInputError } from '../../../../src/index.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { type DashboardOptions, dashboard } from '../../src/index.ts'
import { serve, shapedQueue, tokenFile } from './support.ts'

const redis = useRedis(import.meta.url)
const options = { connection: redis.connection, prefix: redis.prefix }

/** The status of a path that is sent as it stands. `fetch` would tidy it up. */
async function statusOf(port: number, path: string): Promise<number | undefined> {
  const sent = request({ host: '127.0.0.1', port, path }).end()
  const [response] = await once(sent, 'response')
  response.resume()
  await once(response, 'end')
  return response.statusCode
}

test.each(['', '/sluice', '/a/b'])(
  'the page stands at its mount %j, with fields that keep others out',
  async (mount) => {
    const { get } = await serve(options, mount)
    const page = await get('')
    expect(page.status).toBe(200)
    const text = await page.text()
    expect(text).toMatch(/^<!doctype html>/i)
    expect(text).toMatch(/<meta name="description" content="[^"]{20,160}">/)
    expect(Object.fromEntries(page.headers)).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': expect.stringMatching(/^default-src 'self';(?!.*script-src).*frame-ancestors 'none'/),
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'x-frame-options': 'DENY',
      'cache-control': 'no-cache',
    })
    expect(text).not.toMatch(/<[^>]* (?:on\w+|style)=|<script[^>]*>[^<]|<style/)
    const nothing = await get('nowhere')
    expect([nothing.status, nothing.headers.get('x-frame-options')]).toEqual([404, mount === '' ? null : 'DENY'])
  },
)

test('without the slash it leads to the page, and keeps what it was asked for', async () => {
  const { port } = await serve(options, '/sluice')
  const moved = await fetch(`http://127.0.0.1:${port}/sluice?queue=emails`, { redirect: 'manual' })
  expect([moved.status, moved.headers.get('location')]).toEqual([308, 'sluice/?queue=emails'])
  const page = await fetch(`http://127.0.0.1:${port}/sluice?queue=emails`)
  expect([page.status, page.url]).toEqual([200, `http://127.0.0.1:${port}/sluice/?queue=emails`])
})

test('the page is the same for all, and holds no data of any queue', async () => {
  await shapedQueue(redis, 'secret')
  const { file } = tokenFile({ ada: undefined })
  const texts = [{ ...options, tokens: file }, options].map(async (given) => {
    const { get } = await serve(given, '/sluice')
    return [await (await get('')).text(), await (await get('?queue=secret')).text()]
  })
  const all = (await Promise.all(texts)).flat()
  expect(new Set(all).size).toBe(1)
  expect(all[0]).not.toContain('secret')
})

test('what the page will ask for is announced with it, by paths that the API answers', async () => {
  const queue = await shapedQueue(redis, 'for <all> ; "ü"')
  const { get, url } = await serve(options, '/sluice')
  const announced = async (query: string) => {
    const { headers } = await get(query)
    return Array.from((headers.get('link') ?? '').matchAll(/<([^>]*)>; rel=(\w+)/g), ([, path, rel]) => [rel, path])
  }
  expect(await announced('')).toEqual([['preload', 'api/fleet']])
  const links = await announced(`?queue=${encodeURIComponent(queue.name)}`)
  expect(links).toEqual([
    ['modulepreload', expect.stringMatching(/^assets\/queue-view-[\w-]+\.js$/)],
    ['preload', 'api/fleet?count=0'],
    ['preload', `api/queues/${encodeURIComponent(queue.name)}`],
  ])
  for (const [, path] of links) expect((await fetch(new URL(path as string, url))).status, path).toBe(200)
  expect(await announced(`?queue=${'ü'.repeat(500)}`)).toHaveLength(1)
})

/** The paths that a text names, relative to its own. */
async function namedIn(url: string): Promise<string[]> {
  const text = await (await fetch(url)).text()
  return Array.from(text.matchAll(/["'`](\.\/[\w./-]+\.\w+)["'`]/g), ([, path]) => new URL(path as string, url).href)
}

test('every file that the page names comes compressed, and is kept for good if its name changes with it', async () => {
  const { url } = await serve(options, '/sluice')
  const first = await namedIn(url)
  const later = await namedIn(first.find((file) => file.endsWith('.js') && file.includes('/assets/')) as string)
  const files = [...new Set([...first, ...later])]
  const types = files.map((file) => file.replace(/-[\w-]{8}\./, '.').slice(url.length))
  expect(types).toEqual(expect.arrayContaining(['assets/index.js', 'assets/index.css', 'assets/queue-view.js']))
  for (const file of files) {
    const plain = await fetch(file, { headers: { 'accept-encoding': 'identity' } })
    const text = await plain.text()
    for (const [coding, accepts] of [
      ['br', 'gzip, br'],
      ['gzip', 'br;q=0, gzip'],
    ] as const) {
      const zipped = await fetch(file, { headers: { 'accept-encoding': accepts } })
      expect([zipped.headers.get('content-encoding'), zipped.headers.get('vary')]).toEqual([coding, 'accept-encoding'])
      expect(await zipped.text()).toBe(text)
    }
    const isForGood = plain.headers.get('cache-control') === 'public, max-age=31536000, immutable'
    expect([file, isForGood]).toEqual([file, file.includes('/assets/')])
    expect(plain.headers.get('x-content-type-options')).toBe('nosniff')
    // A package's files all have one time: what is checked again by it might be taken for unchanged.
    expect([plain.headers.get('etag'), plain.headers.get('last-modified')]).toEqual([null, null])
  }
})

test('the first load is less than 25 KB, and that of a queue less than 75 KB', async () => {
  const { url } = await serve(options)
  const bytesOf = async (file: string) =>
    Number((await fetch(file, { headers: { 'accept-encoding': 'gzip' } })).headers.get('content-length'))
  const sum = async (files: readonly string[]) => (await Promise.all(files.map(bytesOf))).reduce((a, b) => a + b, 0)
  const first = [url, ...new Set(await namedIn(url))]
  const later = await namedIn(first.find((file) => file.endsWith('.js') && file.includes('/assets/')) as string)
  expect(await sum(first)).toBeLessThan(25_000)
  expect(await sum([...first, ...later])).toBeLessThan(75_000)
})

test('JSON is compressed where that is worth it', async () => {
  for (let i = 0; i < 5; i++) await shapedQueue(redis, `json-${i}`)
  const { get } = await serve(options)
  const fields = async (path: string, coding: string) => {
    const response = await get(path, { 'accept-encoding': coding })
    await response.json()
    return ['content-encoding', 'vary', 'cache-control'].map((field) => response.headers.get(field))
  }
  expect(await fields('api/fleet', 'gzip')).toEqual(['gzip', 'accept-encoding', 'no-store'])
  expect(await fields('api/fleet', 'identity')).toEqual([null, 'accept-encoding', 'no-store'])
  expect(await fields('api/queues/json-1/jobs', 'gzip')).toEqual([null, null, 'no-store'])
})

test.each([
  '/assets/../package.json',
  '/assets/../src/index.ts',
  '/assets/%2e%2e/package.json',
  '/assets/..%2fpackage.json',
  '/assets/..%5cpackage.json',
  '/assets/%252e%252e/package.json',
  '/assets//etc/passwd',
  '/assets/%2fetc%2fpasswd',
  '/assets/index.html',
  '/assets/index.html%00.css',
  '/.vite/manifest.json',
  '/index.html.br',
  '/assets/',
  '/assets/wire.d.ts',
  '/assets/__proto__',
  '/assets/constructor',
])('no path leads out of the assets: %s', async (path) => {
  const { port } = await serve(options)
  expect(await statusOf(port, path)).toBeOneOf([400, 404])
})

test.each<[Partial<Record<keyof DashboardOptions, unknown>>, RegExp]>([
  [{ connection: undefined }, /connection must be/],
  [{ readConnection: 'redis://localhost' }, /readConnection must be/],
  [{ prefix: 5 }, /prefix must be a string; got 5/],
  [{ allowActions: 'false' }, /allowActions must be a boolean; got "false"/],
  [{ showData: 1 }, /showData must be a boolean/],
  [{ guardedBefore: 'no' }, /guardedBefore must be a boolean/],
  [{ actor: 'me' }, /actor must be a function/],
  [{ tokens: ['a'] }, /tokens must be a string/],
])('options %j are refused at once', (wrong, problem) => {
  const make = () => dashboard({ ...options, ...wrong } as DashboardOptions)
  expect(make).toThrow(InvalidInputError)
  expect(make).toThrow(problem)
})

test('a token file that can not be read stops the app', async () => {
  const app = fastify()
  onTestFinished(() => app.close())
  app.register(dashboard({ ...options, tokens: '/nowhere/tokens.json' }))
  await expect(app.ready()).rejects.toThrow('/nowhere/tokens.json')
})
