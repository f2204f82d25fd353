import { createServer } from 'node:http'
import express from 'express'
import Fastify from 'fastify'
import { expect, onTestFinished, test } from 'vitest'
import { useLimiters } from '../../../../test/limits/support/limiters.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { fastifyHook, fastifyMiddleware } from '../../src/adapters/fastify.ts'
import { fetchMiddleware } from '../../src/adapters/fetch.ts'
import { connectMiddleware } from '../../src/adapters/node.ts'
import { byAddress } from '../../src/limits/address.ts'
import { byUser, composeKeys } from '../../src/limits/key-functions.ts'
import { rateLimit } from '../../src/limits/rate-limit.ts'
import { call } from '../adapters/support/callers.ts'
import { listen } from '../adapters/support/servers.ts'

const redis = useRedis(import.meta.url)
const { limiter } = useLimiters(redis)

/** What the examples of docstrings take for given. */
const middlewareOf = (name: string, key = byAddress()) => rateLimit({ limit: limiter({ name, rate: '1/h' }), key })
const statuses = async (ask: () => Promise<{ status: number | undefined }>) => [
  (await ask()).status,
  (await ask()).status,
]

test('rateLimit, and fastifyHook', async () => {
  const app = Fastify()
  onTestFinished(() => app.close())
  const login = async () => 'welcome'
  const search = async () => 'found'
  const logins = limiter({ name: 'logins', algorithm: 'sliding-window-log', rate: '5/15min' })
  const middleware = middlewareOf('hook')
  app.post('/login', { onRequest: fastifyHook(rateLimit({ limit: logins, key: byAddress() })) }, login)
  app.get('/search', { onRequest: fastifyHook(middleware) }, search)
  for (let i = 0; i < 5; i++) expect((await app.inject({ method: 'POST', url: '/login' })).payload).toBe('welcome')
  expect((await app.inject({ method: 'POST', url: '/login' })).statusCode).toBe(429)
  const ask = async () => ({ status: (await app.inject('/search')).statusCode })
  expect(await statuses(ask)).toEqual([200, 429])
})

test('fastifyMiddleware', async () => {
  const app = Fastify()
  onTestFinished(() => app.close())
  const middleware = middlewareOf('plugin')
  await app.register(fastifyMiddleware(middleware))
  app.get('/', async () => 'found')
  const ask = async () => ({ status: (await app.inject('/')).statusCode })
  expect(await statuses(ask)).toEqual([200, 429])
})

test('connectMiddleware', async () => {
  const app = express()
  const middleware = middlewareOf('connect')
  const guard = connectMiddleware(middleware)
  app.use('/api', guard)
  const inExpress = await listen(app)
  expect(await statuses(() => call(`${inExpress}/api`))).toEqual([404, 429])
  const server = createServer((req, res) =>
    guard(req, res, (error) => void (error ? res.writeHead(500).end() : res.end('found'))),
  )
  const plain = await listen((req, res) => void server.emit('request', req, res))
  expect((await call(plain)).status).toBe(429)
})

test('fetchMiddleware', async () => {
  const middleware = middlewareOf('fetch')
  const guarded = fetchMiddleware(middleware, (request) => new Response(`found ${request.url}`))
  const ask = () => guarded(new Request('http://localhost/search'), { remoteAddress: '203.0.113.7' })
  expect(await statuses(ask)).toEqual([200, 429])
})

test('byAddress and composeKeys', async () => {
  const key = composeKeys([byUser(), byAddress({ trustProxy: ['loopback', '10.0.0.0/8'], ipv6Prefix: 56 })])
  const origin = await listen(express().use(connectMiddleware(middlewareOf('composed', key))))
  const from = (address: string) => call(origin, { headers: { 'x-forwarded-for': address } })
  expect(await statuses(() => from('2001:db8::1'))).toEqual([404, 429])
  expect((await from('2001:db8:0:ff::1')).status).toBe(429)
  expect((await from('2001:db8:0:100::1')).status).toBe(404)
})
