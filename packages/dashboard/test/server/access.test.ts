import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { networkInterfaces } from 'node:os'
import { fastify } from 'fastify'
import { expect, onTestFinished, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import { dashboard } from '../../src/index.ts'
import { SAME_ORIGIN, serve, shapedQueue, tokenFile } from './support.ts'

const redis = useRedis(import.meta.url)
const options = { connection: redis.connection, prefix: redis.prefix }
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

/** The cookie of a session, as a browser sends it back. */
async function cookieOf(answer: Response): Promise<string> {
  return answer.headers.getSetCookie()[0]?.split(';')[0] as string
}

async function problemOf(answer: Response): Promise<unknown> {
  expect(answer.headers.get('content-type')).toBe('application/problem+json')
  expect(answer.headers.get('x-content-type-options')).toBe('nosniff')
  return answer.json()
}

// Fault table, row 34.
test('without a token the page is served, but nothing about any queue', async () => {
  const { file } = tokenFile({ ada: undefined })
  const { get, post } = await serve({ ...options, tokens: file, allowActions: true })
  expect((await get('')).status).toBe(200)
  expect((await get('first-theme.js')).status).toBe(200)
  const paths = [
    'fleet',
    'queues/a',
    'queues/a/series',
    'queues/a/jobs',
    'queues/a/dead?from=b',
    'queues/a/jobs/1/explain',
  ]
  for (const path of [...paths, 'events', 'nothing']) {
    const refused = await get(`api/${path}`)
    expect([path, refused.status, refused.headers.get('www-authenticate')]).toEqual([
      path,
      401,
      'Bearer realm="sluice"',
    ])
    expect(await problemOf(refused)).toMatchObject({ status: 401, detail: 'a token is needed' })
  }
  expect((await post('api/queues/a/actions', { action: 'resume', reason: 'why' })).status).toBe(401)
})

test.each(['x'.repeat(43), 'short', '', `sluice_${'x'.repeat(43)}`])('a wrong token %j is refused', async (token) => {
  const { file } = tokenFile({ ada: undefined })
  const { get, post } = await serve({ ...options, tokens: file })
  expect((await get('api/fleet', bearer(token))).status).toBe(401)
  const refused = await post('login', { token })
  expect(refused.status).toBe(token === '' ? 422 : 401)
  expect(refused.headers.getSetCookie()).toEqual([])
})

test('a token opens a session, whose cookie is not the token, and a logout ends it', async () => {
  const { file, tokens } = tokenFile({ ada: undefined })
  const { get, post } = await serve({ ...options, tokens: file }, '/sluice')
  expect((await get('api/fleet', bearer(tokens.ada))).status).toBe(200)
  const entered = await post('login', { token: tokens.ada })
  expect(entered.status).toBe(204)
  const [set = ''] = entered.headers.getSetCookie()
  expect(set.split('; ').slice(1).toSorted()).toEqual(['HttpOnly', 'Max-Age=43200', 'Path=/sluice', 'SameSite=Strict'])
  expect(set).not.toContain(tokens.ada)
  const cookie = await cookieOf(entered)
  expect(cookie).toMatch(/^sluice_session=[\w-]{43}$/)
  expect((await get('api/fleet', { cookie })).status).toBe(200)
  expect((await get('api/fleet', { cookie: `${cookie}x` })).status).toBe(401)
  // What a proxy asks for by a scheme of its own is none of ours.
  expect((await get('api/fleet', { cookie, authorization: 'Basic YTpi' })).status).toBe(200)
  const left = await post('logout', {}, { ...SAME_ORIGIN, cookie })
  expect([left.status, left.headers.getSetCookie()[0]]).toEqual([
    204,
    expect.stringContaining('Expires=Thu, 01 Jan 1970'),
  ])
  expect((await get('api/fleet', { cookie })).status).toBe(401)
})

test('behind TLS the cookie is for TLS alone', async () => {
  const { file, tokens } = tokenFile({ ada: undefined })
  const app = fastify({ trustProxy: ['127.0.0.1'] })
  onTestFinished(() => app.close())
  await app.register(dashboard({ ...options, tokens: file }))
  const headers = { ...SAME_ORIGIN, 'x-forwarded-proto': 'https' }
  const entered = await app.inject({ method: 'POST', url: '/login', payload: { token: tokens.ada }, headers })
  expect(entered.headers['set-cookie']).toContain('; Secure')
})

test('after ten wrong tokens further wrong ones have to wait, and a right one passes from the same address', async () => {
  const { file, tokens } = tokenFile({ ada: undefined })
  const { get, post } = await serve({ ...options, tokens: file })
  const cookie = await cookieOf(await post('login', { token: tokens.ada }))
  const wrong = (i: number) =>
    i % 2 ? post('login', { token: 'x'.repeat(40) }) : get('api/fleet', bearer('y'.repeat(40)))
  for (let i = 0; i < 10; i++) expect((await wrong(i)).status).toBe(401)
  for (const refused of [await wrong(0), await wrong(1)]) {
    expect(refused.status).toBe(429)
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
  }
  expect((await get('api/fleet', bearer(tokens.ada))).status).toBe(200)
  expect((await post('login', { token: tokens.ada })).status).toBe(204)
  expect((await get('api/fleet', { cookie })).status).toBe(200)
})

test('a token that is taken out of the file ends its sessions', async () => {
  const { file, tokens } = tokenFile({ ada: undefined, bob: undefined })
  const told: string[] = []
  let reloaded = () => {}
  const read = new Promise<void>((resolve) => {
    reloaded = resolve
  })
  const write = (line: string) => {
    told.push(line)
    if (line.includes('tokens were read again')) reloaded()
  }
  const app = fastify({ logger: { level: 'info', stream: { write } } })
  onTestFinished(() => app.close())
  await app.register(dashboard({ ...options, tokens: file }))
  const login = (token: string) =>
    app.inject({ method: 'POST', url: '/login', payload: { token }, headers: SAME_ORIGIN })
  const cookies = await Promise.all(
    [tokens.ada, tokens.bob].map(async (token) => String((await login(token)).headers['set-cookie']).split(';')[0]),
  )
  const entries = JSON.parse(readFileSync(file, 'utf8')) as { name: string }[]
  writeFileSync(file, JSON.stringify(entries.filter(({ name }) => name === 'bob')))
  await read
  const statuses = await Promise.all(
    cookies.map(async (cookie) => (await app.inject({ url: '/api/fleet', headers: { cookie } })).statusCode),
  )
  expect(statuses).toEqual([401, 200])
  expect(told.join('')).not.toContain(tokens.ada)
})

test('a token for some queues shows no other', async () => {
  await shapedQueue(redis, 'open')
  await shapedQueue(redis, 'closed')
  const { file, tokens } = tokenFile({ ada: undefined, bob: ['open'] })
  const { get, post } = await serve({ ...options, tokens: file, allowActions: true })
  const names = async (token: string) => {
    const { queues } = (await (await get('api/fleet', bearer(token))).json()) as { queues: { name: string }[] }
    return queues.map(({ name }) => name)
  }
  expect(await names(tokens.ada)).toEqual(expect.arrayContaining(['closed', 'open']))
  expect(await names(tokens.bob)).toEqual(['open'])
  expect((await get('api/queues/open', bearer(tokens.bob))).status).toBe(200)
  for (const path of ['', '/series', '/jobs', '/dead?from=x', '/jobs/1/explain']) {
    expect((await get(`api/queues/closed${path}`, bearer(tokens.bob))).status).toBe(404)
  }
  expect((await get('api/events?queue=closed', bearer(tokens.bob))).status).toBe(404)
  const action = { action: 'pause', ttlMs: 1000, reason: 'why' }
  expect((await post('api/queues/closed/actions', action, bearer(tokens.bob))).status).toBe(404)
})

test('without a token file, another name that resolves to this machine is not answered', async () => {
  const { port, get } = await serve(options)
  expect((await get('api/fleet')).status).toBe(200)
  const sent = request({ host: '127.0.0.1', port, path: '/api/fleet', headers: { host: `evil.example:${port}` } }).end()
  const [answer] = await once(sent, 'response')
  answer.resume()
  expect(answer.statusCode).toBe(403)
})

const outside = Object.values(networkInterfaces())
  .flat()
  .find((one) => one?.family === 'IPv4' && !one.internal)?.address

test.skipIf(outside === undefined).each([
  [false, 403],
  [true, 200],
])(
  'without a token file, other machines are answered if something before asks them (%s)',
  async (guardedBefore, status) => {
    const app = fastify()
    onTestFinished(() => app.close())
    await app.register(dashboard({ ...options, guardedBefore }))
    const url = await app.listen({ host: outside as string, port: 0 })
    expect((await fetch(`${url}/api/fleet`)).status).toBe(status)
  },
)

test('another site gets no answer', async () => {
  const { get } = await serve(options)
  const refused = await get('api/fleet', { 'sec-fetch-site': 'cross-site' })
  expect(refused.status).toBe(403)
  expect(refused.headers.get('access-control-allow-origin')).toBeNull()
})
