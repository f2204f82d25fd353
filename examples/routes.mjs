// One limit before a route of Express and a route of Fastify: a caller cannot get twice as much by asking both. And routes
// that add to a queue, and say when to come back if it is full. It sends requests to itself. Needs a Redis: REDIS_URL, or one on this machine, and the packages express, fastify,
// sluice-gateway.
//   npm run build && node examples/routes.mjs
import { once } from 'node:events'
import express from 'express'
import { fastify } from 'fastify'
import { Redis } from 'ioredis'
import { ShapedQueue } from 'sluice'
import { createLimiter } from 'sluice/limits'
import { byAddress, connectMiddleware, fastifyHook, rateLimit, refusalResponse } from 'sluice-gateway'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const redis = new Redis(connection.url)
const prefix = process.env.PREFIX ?? 'sluice-examples'

// Five attempts in a quarter of an hour, exactly, from one address.
const definition = { name: 'logins', algorithm: 'sliding-window-log', rate: '5/15min' }
const logins = createLimiter(redis, { ...definition, prefix, timeoutMs: 1000 })
const middleware = rateLimit({ limit: logins, key: byAddress() })

const expressApp = express()
expressApp.post('/login', connectMiddleware(middleware), (_request, response) => void response.json({ ok: true }))

const fastifyApp = fastify()
fastifyApp.post('/login', { onRequest: fastifyHook(middleware) }, async () => ({ ok: true }))

// A full queue is answered like a limit that is used up: 429, and when to come back.
const mails = new ShapedQueue('mails', { connection, prefix, shape: { rate: '1/min', capacity: 1 } })

expressApp.post('/mails', express.json(), async (request, response) => {
  const job = await mails.add('welcome', request.body)
  response.status(202).json({ id: job.id })
})
expressApp.use((error, _request, response, next) => {
  const refusal = refusalResponse(error, { policyName: 'mails' })
  if (!refusal) return next(error)
  response.status(refusal.status).set(refusal.headers).send(refusal.body)
})

fastifyApp.post('/mails', async (request, reply) => {
  const job = await mails.add('welcome', request.body)
  return reply.code(202).send({ id: job.id })
})
fastifyApp.setErrorHandler((error, _request, reply) => {
  const refusal = refusalResponse(error, { policyName: 'mails' })
  if (!refusal) return reply.send(error)
  return reply.code(refusal.status).headers(refusal.headers).send(Buffer.from(refusal.body))
})

const expressServer = expressApp.listen(0, '127.0.0.1')
await once(expressServer, 'listening')
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

const body = JSON.stringify({ to: 'ann@example.com' })
for (const [name, url] of Object.entries(servers)) {
  const post = () => fetch(`${url}/mails`, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
  const responses = [await post(), await post()]
  const again = responses.map(({ headers }) => (headers.has('retry-after') ? 'come back' : 'taken'))
  console.log(`${name}: ${responses.map(({ status }, i) => `${status} ${again[i]}`).join(', ')}`)
}

expressServer.close()
await fastifyApp.close()
await mails.obliterate({ force: true })
await mails.close()
await logins.reset('127.0.0.1')
await redis.unlink(`${prefix}:limit:{logins}`)
redis.disconnect()
