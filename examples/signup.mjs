// A sign-up form that says when to come back, instead of promising a mail that will be late. It sends requests to itself.
// Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/signup.mjs
import { once } from 'node:events'
import { createServer } from 'node:http'
import { ShapedQueue, ShapedWorker } from 'sluice'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'

// No one waits longer than two seconds for the mail: a sign-up that would is refused at once.
const shape = { rate: '5/s', maxWaitMs: 2000 }
const queue = new ShapedQueue('signups', { connection, prefix, shape })
const worker = new ShapedWorker('signups', async (job) => `mailed ${job.data.to}`, { connection, prefix, shape })
await worker.waitUntilReady()

const server = createServer(async (request, response) => {
  const to = new URL(request.url, 'http://localhost').searchParams.get('mail')
  const offer = await queue.offer('welcome', { to })
  if (offer.accepted) return response.end(`Look for our mail at ${offer.startsAt.toLocaleTimeString()}.`)
  const seconds = Math.ceil(offer.retryAfterMs / 1000)
  response.writeHead(429, { 'retry-after': seconds }).end(`Very busy. Please try again in ${seconds} s.`)
}).listen(0, '127.0.0.1')
await once(server, 'listening')

const signUp = (i) => fetch(`http://127.0.0.1:${server.address().port}/?mail=user${i}@example.com`)
const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => signUp(i)))
const refusal = answers.find(({ status }) => status === 429)
const accepted = answers.filter(({ ok }) => ok)
console.log(`${accepted.length} accepted: ${await accepted[0].text()}`)
console.log(`${answers.length - accepted.length} refused: ${await refusal.text()}`)

server.close()
await worker.close()
await queue.obliterate({ force: true })
await queue.close()
