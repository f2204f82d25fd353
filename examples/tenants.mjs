// Tenants with plans in one queue: a free tenant gets its turns and has a bound, a pro tenant gets four times the share.
// Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/tenants.mjs
import { GroupFullError, ShapedQueue, ShapedWorker } from 'sluice'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'

// What every tenant has: the free plan. 50 a second for all tenants together.
const shape = { rate: '50/s', capacity: 1000, groups: { capacity: 30, weight: 1 } }
const queue = new ShapedQueue('campaigns', { connection, prefix, shape })

// An upgrade holds for the whole fleet at once. Keep plans in your database: Redis holds what differs from the default.
await queue.setGroup('acme', { weight: 4, capacity: 500 }, { by: 'billing', reason: 'pro plan' })

const mails = (tenant, count) =>
  Array.from({ length: count }, (_, i) => ({ name: 'mail', data: { tenant, i }, opts: { group: { id: tenant } } }))

await queue.addBulk(mails('hobby', 30))
await queue.addBulk(mails('acme', 40))
try {
  await queue.add('mail', { tenant: 'hobby', i: 31 }, { group: { id: 'hobby' } })
} catch (error) {
  if (!(error instanceof GroupFullError)) throw error
  console.log(`${error.groupId} is full: ${error.depth} of ${error.capacity} wait`)
}

const served = []
const worker = new ShapedWorker('campaigns', async (job) => void served.push(job.data.tenant), {
  ...{ connection, prefix, shape },
  concurrency: 5,
})
await new Promise((resolve) => worker.on('completed', () => served.length >= 25 && resolve()))
await worker.close()
console.log(`of the first 25 mails ${served.slice(0, 25).filter((tenant) => tenant === 'acme').length} were acme's`)

await queue.clearGroup('acme', { by: 'billing', reason: 'end of the example' })
await queue.obliterate({ force: true })
await queue.close()
