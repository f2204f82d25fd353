// The same with Fastify: a caller cannot get twice as much by asking both.
import { fastify } from 'fastify'
import { Redis } from 'ioredis'
import { createLimiter } from 'sluice/limits'
import { byAddress, fastifyHook, rateLimit, refusalResponse } from 'sluice-gateway'
import { connection, prefix, queue } from './queue.mjs'

export const redis = new Redis(connection.url)
const definition = { name: 'logins', algorithm: 'sliding-window-log', rate: '5/15min' }
const logins = createLimiter(redis, { ...definition, prefix, timeoutMs: 1000 })

export const app = fastify()

app.post('/login', { onRequest: fastifyHook(rateLimit({ limit: logins, key: byAddress() })) }, async () => ({
  ok: true,
}))

app.post('/signup', async (request, reply) => {
  const job = await queue.add('welcome', { to: request.body.to }, { attempts: 3 })
  return reply.code(202).send({ id: job.id })
})

app.setErrorHandler((error, _request, reply) => {
  const refusal = refusalResponse(error, { policyName: 'signups' })
  if (!refusal) return reply.send(error)
  return reply.code(refusal.status).headers(refusal.headers).send(Buffer.from(refusal.body))
})

export const url = await app.listen({ port: Number(process.env.PORT ?? 3000), host: '127.0.0.1' })
