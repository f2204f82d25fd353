// One job for many changes of the same thing: debounced, the last change counts; throttled, the first one. Both by BullMQ's
// deduplication, in a queue with a bound for each tenant. Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/debounce.mjs
import { ShapedQueue, ShapedWorker } from 'sluice'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const shape = { rate: '50/s', capacity: 100, groups: { capacity: 2 } }
const queue = new ShapedQueue('documents', { connection, prefix, shape })

// Debounced: the job runs once nothing has changed for a second, with the data of the last change.
const index = (tenant, document, revision) =>
  queue.add(
    'index',
    { document, revision },
    {
      group: { id: tenant },
      delay: 1000,
      deduplication: { id: `index:${document}`, ttl: 1000, extend: true, replace: true },
    },
  )

// Throttled: the first one runs, and no other is added for a minute.
const notify = (tenant, document, text) =>
  queue.add(
    'notify',
    { document, text },
    {
      group: { id: tenant },
      deduplication: { id: `notify:${document}`, ttl: 60_000 },
    },
  )

const done = new Map()
const worker = new ShapedWorker('documents', async ({ name, data }) => void done.set(name, data), {
  ...{ connection, prefix, shape },
  removeOnComplete: { count: 1000 },
  removeOnFail: { count: 5000 },
})

// Five changes of a document, and three messages about it, while nothing leaves.
await queue.pause()
for (let revision = 1; revision <= 5; revision++) await index('acme', 'plan', revision)
for (const text of ['ann wrote', 'bob wrote', 'cid wrote']) await notify('acme', 'plan', text)
console.log(`${(await queue.meter()).depth} jobs for 8 calls`)

// Repeated calls take no place. Another job of the tenant does, and its two are taken.
await queue.add('export', {}, { group: { id: 'acme' } }).catch((error) => console.log(error.name))

const both = new Promise((resolve) => worker.on('completed', () => done.size === 2 && resolve()))
await queue.resume()
await both
console.log(`notify: ${done.get('notify').text}`)
console.log(`index: revision ${done.get('index').revision}`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
