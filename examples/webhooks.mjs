// Plays three endpoints for the program in webhooks: one answers 429 with the time to come back, and only its own webhooks
// wait for that; one is gone, and its webhook comes back from the dead letters. Needs a Redis: REDIS_URL, or one on this
// machine.
//   npm run build && node examples/webhooks.mjs
import { once } from 'node:events'
import { createServer } from 'node:http'
import { Queue } from 'bullmq'
import { disable, queue, replay, send, worker } from './webhooks/webhooks.mjs'

const HOOKS = 10

// /busy refuses its first request, and asks for a second; /broken answers 410 until it is fixed.
const refusals = []
let isFixed = false
const server = createServer((request, response) => {
  if (request.url === '/broken' && !isFixed) return response.writeHead(410).end()
  if (request.url !== '/busy' || refusals.length > 0) return response.end('ok')
  refusals.push(performance.now())
  response.writeHead(429, { 'retry-after': 1 }).end()
}).listen(0, '127.0.0.1')
await once(server, 'listening')
const hook = (endpointId, order) =>
  send(endpointId, `http://127.0.0.1:${server.address().port}/${endpointId}`, { order })

const changes = []
worker.on('feedback', (change) => changes.push(change))
const doneAt = { busy: [], calm: [], broken: [] }
const allDone = new Promise((resolve, reject) => {
  worker.on('completed', (job) => {
    doneAt[job.opts.group.id].push(performance.now())
    if (doneAt.busy.length + doneAt.calm.length === 2 * HOOKS) resolve()
  })
  worker.on('failed', (job, error) => job.opts.group.id === 'broken' || reject(error))
})
const failed = once(worker, 'failed')
await hook('broken', 0)
await Promise.all(Array.from({ length: HOOKS }, (_, order) => [hook('busy', order), hook('calm', order)]).flat())
await allDone

const [refusedAt] = refusals
const resumedAt = Math.min(...doneAt.busy.filter((at) => at > refusedAt + 500))
const waitedMs = resumedAt - refusedAt
console.log(`held: group ${changes[0].scope.group}, for ${changes[0].reason}`)
console.log(waitedMs >= 1000 ? 'nothing went to the busy endpoint before its time' : `too early: ${waitedMs} ms`)
console.log(Math.max(...doneAt.calm) < resumedAt ? 'the calm endpoint did not wait' : 'the calm endpoint waited')
console.log(`delivered: ${doneAt.busy.length} and ${doneAt.calm.length}`)

const [job] = await failed
console.log(`dead letter after ${job.attemptsMade} attempt: ${job.failedReason}`)
const bothDone = new Promise((resolve) => worker.on('completed', () => doneAt.broken.length === 2 && resolve()))
await disable('broken', 'the customer moves it')
await hook('broken', 1)
isFixed = true
const redriven = await replay('broken')
await bothDone
console.log(`replayed: ${redriven}, delivered: ${doneAt.broken.length}`)

await worker.close()
const letters = new Queue('webhooks-dead', queue.opts)
await letters.obliterate({ force: true })
await letters.close()
await queue.obliterate({ force: true })
await queue.close()
server.close()
