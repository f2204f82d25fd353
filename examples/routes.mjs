// One limit before a route of Express and a route of Fastify: a caller cannot get twice as much by asking both. It sends
// requests to itself. Needs a Redis: REDIS_URL, or one on this machine, and the packages express, fastify,
// fastify-plugin, @fastify/proxy-addr, ajv, ajv-formats, ipaddr.js, structured-headers and zod.
//   npm run build && node examples/routes.mjs
import { once } from 'node:events'
import express from 'express'
import { fastify } from 'fastify'
import { Redis } from 'ioredis'
import { byAddress, connectMiddleware, fastifyHook, rateLimit } from 'sluice/http'
import { createLimiter } from 'sluice/limits'

const redis = new Redis(process.env.REDIS_URL ?? 'redis://localhost:6379')
const prefix = process.env.PREFIX ?? 'sluice-examples'

// Five attempts in a quarter of an hour, exactly, from one address.
const definition = { name: 'logins', algorithm: 'sliding-window-log', rate: '5/15min' }
const logins = createLimiter(redis, { ...definition, prefix, timeoutMs: 1000 })
const middleware = rateLimit({ limit: logins, key: byAddress() })

const expressApp = express()
expressApp.post('/login', connectMiddleware(middleware), (_request, response) => void response.json({ ok: true }))
const expressServer = expressApp.listen(0, '127.0.0.1')
await once(expressServer, 'listening')

const fastifyApp = fastify()
fastifyApp.post('/login', { onRequest: fastifyHook(middleware) }, async () => ({ ok: true }))
const fastifyUrl = await fastifyApp.listen({ port: 0, host: '127.0.0.1' })

const servers = { Express: `http://127.0.0.1:${expressServer.address().port}`, Fastify: fastifyUrl }
for (const [name, url] of Object.entries({ ...servers })) {
  const statuses = []
  for (let i = 0; i < 3; i++) statuses.push((await fetch(`${url}/login`, { method: 'POST' })).status)
  console.log(`${name}: ${statuses.join(' ')}`)
}
const refusal = await fetch(`${servers.Express}/login`, { method: 'POST' })
const { title, retryAfterMs } = await refusal.json()
console.log(`${title}: back in ${Math.ceil(retryAfterMs / 60_000)} minutes, ${refusal.headers.get('ratelimit-policy')}`)

expressServer.close()
await fastifyApp.close()
await logins.reset('127.0.0.1')
await redis.unlink(`${prefix}:limit:{logins}`)
redis.disconnect()
