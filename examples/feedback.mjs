// Jobs that call an API which allows 10 requests, refuses the next, and allows as many again after a second. The first
// refusal holds the queue, the refused jobs come again by themselves, and the rate follows what the API takes. Needs a
// Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/feedback.mjs
import { once } from 'node:events'
import { createServer } from 'node:http'
import { ShapedQueue, ShapedWorker } from 'sluice'
import { profiles } from 'sluice/egress'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const JOBS = 20
const ALLOWED = 10
const WAIT_MS = 1000

// The API: a quota, and `Retry-After` once it is used up.
let left = ALLOWED
let refusedAt = Number.NEGATIVE_INFINITY
let refused = 0
const server = createServer((_request, response) => {
  const now = performance.now()
  const sinceRefusal = now - refusedAt
  if (sinceRefusal >= WAIT_MS && left-- > 0) return response.end('charged')
  if (sinceRefusal >= WAIT_MS) {
    refusedAt = now
    left = ALLOWED
  }
  refused++
  response.writeHead(429, { 'retry-after': WAIT_MS / 1000 }).end()
}).listen(0, '127.0.0.1')
await once(server, 'listening')
const api = `http://127.0.0.1:${server.address().port}/charges`

const charge = async () => {
  const response = await fetch(api, { method: 'POST' })
  const text = await response.text().catch(() => '')
  // The error carries the response, so that the profile can read what it says.
  if (!response.ok) throw Object.assign(new Error(`the API answered ${response.status}`), { response })
  return text
}
// Twice of what the API takes: a guess, and a wrong one.
const shape = { rate: '20/s' }
const queue = new ShapedQueue('charges', { connection, prefix, shape })
const feedback = { feedback: profiles.http, adapt: true }
const worker = new ShapedWorker('charges', charge, { connection, prefix, shape, concurrency: 5, ...feedback })

const changes = []
// Jobs must not get a slot between the moment the worker knows of a pause and its end. What had left may still arrive.
let paused = { fromMs: 0, untilMs: 0 }
let early = 0
worker.on('feedback', (change) => {
  changes.push(change)
  if (change.kind === 'pause') paused = { fromMs: Date.now(), untilMs: change.until.getTime() }
})
worker.on('departed', (_job, { departureTimeUs }) => {
  // The end of the pause is in whole ms.
  const slotMs = departureTimeUs / 1000
  if (slotMs > paused.fromMs && slotMs < paused.untilMs - 1) early++
})
let charged = 0
const allDone = new Promise((resolve, reject) => {
  worker.on('completed', () => ++charged === JOBS && resolve())
  worker.on('failed', (_job, error) => reject(error))
})
await queue.addBulk(Array.from({ length: JOBS }, (_, i) => ({ name: 'charge', data: { order: i } })))
await allDone

const pause = changes.find(({ kind }) => kind === 'pause')
const slow = changes.find(({ kind }) => kind === 'slow')
console.log(`the queue paused: ${pause.reason}`)
console.log(`the rate fell from ${slow.from}/s to ${slow.rate}/s`)
console.log(`jobs done: ${charged}, requests refused: ${refused}`)
console.log(early === 0 ? 'nothing was sent before its time' : `requests sent before their time: ${early}`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
server.close()
