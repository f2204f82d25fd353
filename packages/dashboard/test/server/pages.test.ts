import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { request } from 'node:http'
import { gzipSync } from 'node:zlib'
import { fastify } from 'fastify'
import { expect, onTestFinished, test } from 'vitest'
import { InvalidInputError } from '../../../../src/index.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { readAssets } from '../../src/assets.ts'
import { type DashboardOptions, dashboard } from '../../src/index.ts'
import { serve, shapedQueue } from './support.ts'

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
      'content-security-policy': expect.stringMatching(/^default-src 'self';.*frame-ancestors 'none'/),
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'x-frame-options': 'DENY',
      'cache-control': 'no-store, no-transform',
    })
    expect(page.headers.get('content-security-policy')).not.toContain('unsafe')
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

test.each(['', '?queue=emails'])(
  'the page %j runs what is in it by its hash, and nothing else that could be',
  async (query) => {
    const { get } = await serve(options)
    const page = await get(query)
    const text = await page.text()
    const hashes = (pattern: RegExp) =>
      [...text.matchAll(pattern)].map(([, inside]) => {
        return `'sha256-${createHash('sha256')
          .update(inside as string)
          .digest('base64')}'`
      })
    const scripts = hashes(/<script(?: type="module")?>([\s\S]*?)<\/script>/g)
    const styles = hashes(/<style>([\s\S]*?)<\/style>/g)
    expect([scripts.length, styles.length]).toEqual([2, 1])
    const policy = page.headers.get('content-security-policy')
    expect(policy).toContain(`; script-src 'self' ${scripts.join(' ')}; style-src 'self' ${styles.join(' ')}`)
    expect(text).not.toMatch(/<[^>]* (?:on\w+|style)=/)
  },
)

test('every asset is served with its type and a strong ETag, and is not sent twice', async () => {
  const { get, url } = await serve(options, '/sluice')
  const { files: assets } = await readAssets()
  expect([...assets.keys()].toSorted()).toEqual(['favicon.svg', 'queue-view.js', 'uPlot.esm.js'].toSorted())
  for (const [name, { body, type, etag, coded }] of assets) {
    const found = await get(`assets/${name}`, { 'accept-encoding': 'identity' })
    for (const [coding, accepts] of [
      ['br', 'gzip, br'],
      ['gzip', 'br;q=0, gzip'],
    ] as const) {
      const zipped = await get(`assets/${name}`, { 'accept-encoding': accepts })
      const fields = ['content-encoding', 'etag', 'vary'].map((field) => zipped.headers.get(field))
      expect(fields).toEqual([coding, coded[coding].etag, 'accept-encoding'])
      expect(Buffer.from(await zipped.arrayBuffer()).equals(body)).toBe(true)
    }
    expect([name, found.status, found.headers.get('content-type')]).toEqual([name, 200, type])
    expect(found.headers.get('etag')).toBe(etag)
    expect(etag).toMatch(/^"[\w-]{43}"$/)
    expect(found.headers.get('x-content-type-options')).toBe('nosniff')
    expect(Buffer.from(await found.arrayBuffer()).equals(body)).toBe(true)
  }
  const { etag } = assets.get('queue-view.js') as { etag: string }
  for (const tag of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
    const again = await get('assets/queue-view.js', { 'if-none-match': tag, 'accept-encoding': 'gzip;q=0' })
    expect([tag, again.status, await again.text()]).toEqual([tag, 304, ''])
  }
  expect((await get('assets/queue-view.js', { 'if-none-match': '"other"' })).status).toBe(200)
  const head = await fetch(`${url}assets/queue-view.js`, {
    method: 'HEAD',
    headers: { 'accept-encoding': 'identity' },
  })
  expect([head.status, head.headers.get('etag')]).toEqual([200, etag])
})

test('the page names what it loads in a folder of its version, which is kept for good', async () => {
  const { get } = await serve(options, '/sluice')
  const { version } = await readAssets()
  const named = async (path: string) => {
    const page = await (await get(path)).text()
    return [...page.matchAll(/[("]"?(?:\.\/)?assets\/([^"]+)"/g)].map(([, name]) => name as string)
  }
  const all = ['favicon.svg', 'queue-view.js', 'uPlot.esm.js'].map((name) => `${version}/${name}`)
  expect([...new Set(await named(''))].toSorted()).toEqual(all)
  expect([...new Set(await named('?queue=emails'))].toSorted()).toEqual([all[0], all[2]])
  const cacheOf = async (name: string) => (await get(`assets/${name}`)).headers.get('cache-control')
  expect(await cacheOf(`${version}/queue-view.js`)).toBe('public, max-age=31536000, immutable')
  // A page from before an update, and one from after it that is answered by a server from before it.
  expect(await cacheOf(`${'x'.repeat(16)}/queue-view.js`)).toBe('no-cache')
  expect(await cacheOf('queue-view.js')).toBe('no-cache')
})

test('the first load is less than 25 KB, and that of a queue less than 75 KB', async () => {
  const { files, fleetPage, queuePage } = await readAssets()
  const bytesOf = (...names: string[]) =>
    names.reduce((sum, name) => sum + (files.get(name)?.coded.gzip.body.length as number), 0)
  const zipped = ({ text }: { text: string }) => gzipSync(text).length
  expect(zipped(fleetPage) + bytesOf('favicon.svg')).toBeLessThan(25_000)
  expect(zipped(queuePage) + bytesOf('favicon.svg', 'uPlot.esm.js')).toBeLessThan(75_000)
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
