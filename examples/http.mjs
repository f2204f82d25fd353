// A server through which jobs come in over HTTP, into a queue of two places, and one route of which has a limit. It sends
// requests to itself and shows the responses. Needs a Redis: REDIS_URL, or one on this machine, and the packages
// sluice-gateway and fastify.
//   npm run build && node examples/http.mjs
import { fastify } from 'fastify'
import { Redis } from 'ioredis'
import { ShapedQueue, ShapedWorker } from 'sluice'
import { createLimiter } from 'sluice/limits'
import { byAddress, createGateway, fastifyHook, fastifyMiddleware, rateLimit } from 'sluice-gateway'
import { createGatewayClient } from 'sluice-gateway/client'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'

// Jobs in: the queues that callers may reach, and what their jobs look like.
const schema = { type: 'object', properties: { to: { type: 'string', format: 'email' } }, required: ['to'] }
const shape = { rate: '20/s', capacity: 2 }
const mails = { shape, schema, results: true, maxWaitMs: 10_000 }
const gateway = createGateway({ connection, prefix, queues: { mails } })
await gateway.waitUntilReady()

// A route of the server's own: three requests in a quarter of an hour from one address.
const redis = new Redis(connection.url)
const searches = createLimiter(redis, { name: 'searches', algorithm: 'sliding-window-log', rate: '3/15min', prefix })

const app = fastify()
await app.register(fastifyMiddleware(gateway))
app.get('/search', { onRequest: fastifyHook(rateLimit({ limit: searches, key: byAddress() })) }, async () => 'found')
const url = await app.listen({ port: Number(process.env.PORT ?? 0), host: '127.0.0.1' })

/** Any client can do it: with a key of its own it may ask as often as it takes. */
const post = (to, key) =>
  fetch(`${url}/queues/mails/jobs`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': `"${key}"` },
    body: JSON.stringify({ data: { to } }),
  })

await post('ann@example.com', 'order-1')
const again = await post('ann@example.com', 'order-1')
console.log(`ann, twice: ${again.status}, replayed: ${again.headers.get('idempotency-replayed')}`)
await post('bo@example.com', 'order-2')
const full = await post('cy@example.com', 'order-3')
const problem = await full.json()
console.log(`cy: ${full.status} ${problem.title}, back in ${problem.retryAfterMs} ms or ${problem.retry_after} s`)
const wrong = await post('dee', 'order-4')
console.log(`dee: ${wrong.status} ${(await wrong.json()).errors[0].pointer}`)

for (let i = 1; i <= 4; i++) {
  const { status, headers } = await fetch(`${url}/search`)
  if (i >= 3) console.log(`search ${i}: ${status} ${headers.get('ratelimit').split(';t=')[0]}`)
}

// A worker takes the jobs out, at the rate. The typed client comes back after refusals by itself, and waits for the result.
const worker = new ShapedWorker('mails', async (job) => `mailed ${job.data.to}`, {
  ...{ connection, prefix, shape },
  removeOnComplete: { count: 1000 },
  removeOnFail: { count: 5000 },
})
const jobs = createGatewayClient({ url })
const done = await jobs.enqueue('mails', { to: 'cy@example.com' }, { idempotencyKey: 'order-3', waitMs: 10_000 })
console.log(`cy: ${done.state}, ${done.result}`)

await app.close()
await gateway.close()
await worker.close()
const queue = new ShapedQueue('mails', { connection, prefix })
await queue.obliterate({ force: true })
await queue.close()
await searches.reset('127.0.0.1')
await redis.unlink(`${prefix}:limit:{searches}`)
redis.disconnect()
