// Middleware, with the packages that it needs: a job through the gateway, and a route with a limit. Prints what was
// answered as JSON.
import { createRequire } from 'node:module'
import { fastify } from 'fastify'
import { Redis } from 'ioredis'
import { createLimiter } from 'sluice/limits'
import { byAddress, createGateway, fastifyHook, fastifyMiddleware, rateLimit } from 'sluice-gateway'
import { createGatewayClient } from 'sluice-gateway/client'

const connection = { url: process.env.REDIS_URL }
const redis = new Redis(connection.url)
const limit = createLimiter(redis, { name: 'http', algorithm: 'sliding-window-log', rate: '1/day' })
const gateway = createGateway({ connection, queues: { http: { shape: { capacity: 1 }, schema: { type: 'object' } } } })
await gateway.waitUntilReady()
const app = fastify()
await app.register(fastifyMiddleware(gateway))
app.get('/limited', { onRequest: fastifyHook(rateLimit({ limit, key: byAddress() })) }, async () => 'found')
const url = await app.listen({ port: 0, host: '127.0.0.1' })

const jobs = createGatewayClient({ url, fetch })
const { state } = await jobs.enqueue('http', { n: 1 })
const refused = await jobs.enqueue('http', { n: 2 }).catch(({ name, status }) => `${name} ${status}`)
const limited = []
for (let i = 0; i < 2; i++) limited.push((await fetch(`${url}/limited`)).status)
await app.close()
await gateway.close()
redis.disconnect()
const required = createRequire(import.meta.url)('sluice-gateway')
console.log(JSON.stringify({ state, refused, limited, required: typeof required.createGateway }))
