// Webhooks of several customers, each endpoint a group: one endpoint answers 429 with the time to come back, and only
// its own webhooks wait for that; one is broken, and its webhook comes again from the dead letters once it is fixed. Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/groups.mjs
import { once } from 'node:events'
import { createServer } from 'node:http'
import { Queue } from 'bullmq'
import { ShapedQueue, ShapedWorker } from 'sluice'
import { profiles } from 'sluice/egress'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const HOOKS = 10

// The endpoints: /busy refuses its first request, and asks for a second; /broken answers 500 until it is fixed.
const refusals = []
let isFixed = false
const server = createServer((request, response) => {
  if (request.url === '/broken' && !isFixed) return response.writeHead(500).end()
  if (request.url !== '/busy' || refusals.length > 0) return response.end('ok')
  refusals.push(performance.now())
  response.writeHead(429, { 'retry-after': 1 }).end()
}).listen(0, '127.0.0.1')
await once(server, 'listening')
const urlOf = (endpointId) => `http://127.0.0.1:${server.address().port}/${endpointId}`

const deliver = async (job) => {
  const { url, event } = job.data
  // An endpoint that hangs ends here, and the attempt has failed.
  const signal = AbortSignal.timeout(10_000)
  const response = await fetch(url, { method: 'POST', body: JSON.stringify(event), signal })
  await response.text()
  if (!response.ok) throw Object.assign(new Error(`the endpoint answered ${response.status}`), { response })
}

// No endpoint gets more than 50 a second, or two at once. Each holds at most as many places as are free: the default.
const shape = { rate: '200/s', capacity: 1000, groups: { rate: '50/s', concurrency: 2, share: { ofFree: 1 } } }
const queue = new ShapedQueue('webhooks', { connection, prefix, shape })
const feedback = { feedback: profiles.http, feedbackScope: 'group' }
const worker = new ShapedWorker('webhooks', deliver, {
  ...{ connection, prefix, shape, concurrency: 10, ...feedback },
  deadLetter: 'webhooks-dead',
})

// The group is the endpoint. A 5xx uses up an attempt; a 429, or an endpoint that cannot be reached, does not.
const RETRIES = { attempts: 3, backoff: { type: 'exponential', delay: 100 } }
const send = (endpointId, event) =>
  queue.add('webhook', { url: urlOf(endpointId), event }, { group: { id: endpointId }, ...RETRIES })

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
const buried = new Promise((resolve) => {
  worker.on('failed', (job) => job.attemptsMade === RETRIES.attempts && resolve(job))
})
await send('broken', { order: 0 })
await Promise.all(
  Array.from({ length: HOOKS }, (_, order) => [send('busy', { order }), send('calm', { order })]).flat(),
)
await allDone

const [refusedAt] = refusals
const resumedAt = Math.min(...doneAt.busy.filter((at) => at > refusedAt + 500))
const waitedMs = resumedAt - refusedAt
console.log(`held: group ${changes[0].scope.group}, for ${changes[0].reason}`)
console.log(waitedMs >= 1000 ? 'nothing went to the busy endpoint before its time' : `too early: ${waitedMs} ms`)
console.log(Math.max(...doneAt.calm) < resumedAt ? 'the calm endpoint did not wait' : 'the calm endpoint waited')
console.log(`delivered: ${doneAt.busy.length} and ${doneAt.calm.length}`)

console.log(`dead letter: ${(await buried).failedReason}`)
const again = once(worker, 'completed')
// While the customer fixes it, nothing goes to the endpoint. New webhooks are accepted as long as the group has places.
await queue.pauseGroup('broken', { by: 'ops', reason: 'the customer is fixing it', ttlMs: 3_600_000 })
const { redriven } = await queue.redrive({ from: 'webhooks-dead' })
isFixed = true
await queue.resumeGroup('broken', { by: 'ops', reason: 'fixed' })
await again
console.log(`redriven: ${redriven}, delivered: ${doneAt.broken.length}`)

await worker.close()
const letters = new Queue('webhooks-dead', { connection, prefix })
await letters.obliterate({ force: true })
await letters.close()
await queue.obliterate({ force: true })
await queue.close()
server.close()
