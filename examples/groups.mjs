// Webhooks of several customers, each endpoint a group: one endpoint answers 429 with the time to come back, and only
// its own webhooks wait for that. Needs a Redis: REDIS_URL, or one on this machine, and the package structured-headers.
//   npm run build && node examples/groups.mjs
import { once } from 'node:events'
import { createServer } from 'node:http'
import { ShapedQueue, ShapedWorker } from 'sluice'
import { profiles } from 'sluice/egress'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const HOOKS = 10

// The endpoints: /busy refuses its first request, and asks for a second.
const refusals = []
const server = createServer((request, response) => {
  if (request.url !== '/busy' || refusals.length > 0) return response.end('ok')
  refusals.push(performance.now())
  response.writeHead(429, { 'retry-after': 1 }).end()
}).listen(0, '127.0.0.1')
await once(server, 'listening')
const endpoint = (name) => `http://127.0.0.1:${server.address().port}/${name}`

const deliver = async (job) => {
  const response = await fetch(job.data.url, { method: 'POST', body: JSON.stringify(job.data.event) })
  await response.text()
  if (!response.ok) throw Object.assign(new Error(`the endpoint answered ${response.status}`), { response })
}

// No endpoint gets more than 50 a second, or two at once. Each holds at most as many places as are free: the default.
const shape = { rate: '200/s', capacity: 1000, groups: { rate: '50/s', concurrency: 2, share: { ofFree: 1 } } }
const queue = new ShapedQueue('webhooks', { connection, prefix, shape })
const feedback = { feedback: profiles.http, feedbackScope: 'group' }
const worker = new ShapedWorker('webhooks', deliver, { connection, prefix, shape, concurrency: 10, ...feedback })

const changes = []
worker.on('feedback', (change) => changes.push(change))
const doneAt = { busy: [], calm: [] }
const allDone = new Promise((resolve, reject) => {
  worker.on('completed', (job) => {
    doneAt[job.opts.group.id].push(performance.now())
    if (doneAt.busy.length + doneAt.calm.length === 2 * HOOKS) resolve()
  })
  worker.on('failed', (_job, error) => reject(error))
})
const hook = (group, i) => ({
  name: 'hook',
  data: { url: endpoint(group), event: { order: i } },
  opts: { group: { id: group } },
})
await queue.addBulk(Array.from({ length: HOOKS }, (_, i) => [hook('busy', i), hook('calm', i)]).flat())
await allDone

const [refusedAt] = refusals
const resumedAt = Math.min(...doneAt.busy.filter((at) => at > refusedAt + 500))
const waitedMs = resumedAt - refusedAt
console.log(`held: group ${changes[0].scope.group}, for ${changes[0].reason}`)
console.log(waitedMs >= 1000 ? 'nothing went to the busy endpoint before its time' : `too early: ${waitedMs} ms`)
console.log(Math.max(...doneAt.calm) < resumedAt ? 'the calm endpoint did not wait' : 'the calm endpoint waited')
console.log(`delivered: ${doneAt.busy.length} and ${doneAt.calm.length}`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
server.close()
