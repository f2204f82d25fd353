// Signs up and logs in at the servers in signup, more often than they allow. Needs a Redis: REDIS_URL, or one on this
// machine, and the packages express, fastify and sluice-gateway.
//   npm run build && node examples/signup.mjs
import { once } from 'node:events'
import { prefix, queue } from './signup/queue.mjs'

process.env.PORT = '0'
const { worker } = await import('./signup/worker.mjs')
const byExpress = await import('./signup/express.mjs')
const byFastify = await import('./signup/fastify.mjs')
const { POST } = await import('./signup/route.mjs')
await Promise.all([worker.waitUntilReady(), byExpress.server.listening || once(byExpress.server, 'listening')])

const urls = { Express: `http://127.0.0.1:${byExpress.server.address().port}`, Fastify: byFastify.url }
const headers = { 'content-type': 'application/json' }
const post = (url, to) => fetch(url, { method: 'POST', headers, body: JSON.stringify({ to }) })

for (const [name, url] of Object.entries(urls)) {
  const statuses = []
  for (let i = 0; i < 3; i++) statuses.push((await post(`${url}/login`)).status)
  console.log(`logins by ${name}: ${statuses.join(' ')}`)
}

// Twenty at once by each, where the queue takes about eleven in two seconds.
const refused = async (signUp) => {
  const responses = await Promise.all(Array.from({ length: 20 }, (_, i) => signUp(`user${i}@example.com`)))
  const refusals = responses.filter(({ status }) => status === 429)
  console.log(`${responses.filter(({ status }) => status === 202).length} accepted, ${refusals.length} refused`)
  return refusals[0]
}
await refused((to) => post(`${urls.Express}/signup`, to))
const { title } = await (await refused((to) => post(`${urls.Fastify}/signup`, to))).json()
console.log(title)
const next = await refused((to) =>
  POST(new Request('http://localhost', { method: 'POST', body: JSON.stringify({ to }) })),
)
console.log((await next.json()).error)

byExpress.server.close()
byExpress.server.closeAllConnections()
await byFastify.app.close()
await worker.close()
await queue.obliterate({ force: true })
await queue.close()
await byExpress.logins.reset('127.0.0.1')
await byExpress.redis.unlink(`${prefix}:limit:{logins}`)
byExpress.redis.disconnect()
byFastify.redis.disconnect()
