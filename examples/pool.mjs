// Calls of an API with three keys, each of which allows ten a second. Each call departs with the key that may go first, and a
// key that the API refuses rests alone. Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/pool.mjs
import { createServer } from 'node:http'
import { ShapedQueue, ShapedWorker } from 'sluice'
import { profiles } from 'sluice/egress'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'

// The API: it allows each key ten calls a second, and refuses the second one of the key of `b`, with a time to come back.
const used = new Map()
const api = createServer((request, response) => {
  const count = (used.get(request.headers.authorization) ?? 0) + 1
  used.set(request.headers.authorization, count)
  const isRefused = request.headers.authorization === 'Bearer secret-b' && count === 2
  response.writeHead(isRefused ? 429 : 200, isRefused ? { 'retry-after': '1' } : {}).end()
})
await new Promise((resolve) => api.listen(0, '127.0.0.1', resolve))
const url = `http://127.0.0.1:${api.address().port}/`

// Names of keys. The keys themselves stay in the programs: Redis and logs see the names only.
const secrets = { a: 'secret-a', b: 'secret-b', c: 'secret-c' }
const shape = { limits: [{ name: 'keys', pool: Object.keys(secrets), rate: '10/s' }] }

const queue = new ShapedQueue('lookups', { connection, prefix, shape })
const worker = new ShapedWorker(
  'lookups',
  async (job) => {
    const key = job.departure.pool.keys
    const response = await fetch(url, { headers: { authorization: `Bearer ${secrets[key]}` } })
    if (!response.ok) throw Object.assign(new Error(`status ${response.status}`), { response })
    return key
  },
  { connection, prefix, shape, concurrency: 10, feedback: profiles.http, feedbackScope: { pool: 'keys' } },
)
worker.on('feedback', ({ scope, reason }) => console.log(`key ${scope.member} rests: ${reason}`))

const calls = { a: 0, b: 0, c: 0 }
const allDone = new Promise((resolve) => {
  worker.on('completed', (_, key) => {
    calls[key] += 1
    if (calls.a + calls.b + calls.c === 30) resolve()
  })
})
await queue.addBulk(Array.from({ length: 30 }, (_, i) => ({ name: 'lookup', data: { i } })))
await allDone
console.log(`calls done with a: ${calls.a}, b: ${calls.b}, c: ${calls.c}`)

// By hand: no more jobs depart with `c`, and those that run with it finish.
await queue.setLimit('keys', 'c', { held: true }, { by: 'ops', reason: 'the key is to be replaced' })
const { inForce, remaining } = await queue.getLimit('keys', 'c')
console.log(`key c: ${inForce.held ? 'held' : 'in use'}, ${inForce.rate}, ${remaining} left`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
api.close()
