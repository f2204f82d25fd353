// Tenants with plans in one queue: a free tenant gets its turns and has a bound, a pro tenant gets four times the share.
// Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/tenants.mjs
import { GroupFullError, ShapedQueue, ShapedWorker } from 'sluice'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'

// 50 a second for all tenants together. Every tenant starts with the free plan.
const shape = { rate: '50/s', capacity: 1000, groups: { capacity: 30, weight: 1 } }
const queue = new ShapedQueue('campaigns', { connection, prefix, shape })

const PLANS = { free: { weight: 1, capacity: 30 }, pro: { weight: 4, capacity: 500 } }
/** Takes effect at once, in the whole fleet. */
const setPlan = (tenant, plan) => queue.setGroup(tenant, PLANS[plan], { by: 'billing', reason: `${plan} plan` })

/** Adds an email. If the tenant's part of the queue is full, returns when to come back, ms. */
async function mail(tenant, to) {
  try {
    await queue.add('mail', { to }, { group: { id: tenant }, attempts: 3 })
  } catch (error) {
    if (!(error instanceof GroupFullError)) throw error
    return error.retryAfterMs
  }
}

const served = []
const send = async (job) => void served.push(job.opts.group.id)
const worker = new ShapedWorker('campaigns', send, {
  ...{ connection, prefix, shape },
  concurrency: 5,
  removeOnComplete: { count: 1000 },
  removeOnFail: { count: 5000 },
})
process.once('SIGTERM', () => Promise.all([worker.close(), queue.close()]))

// A campaign of each, added while nothing leaves.
await queue.pause()
await setPlan('acme', 'pro')
const campaign = async (tenant, count) => {
  for (let i = 0; i < count; i++) await mail(tenant, `user${i}@example.com`)
}
await Promise.all([campaign('hobby', 30), campaign('acme', 40)])
const retryAfterMs = await mail('hobby', 'one-more@example.com')
console.log(`hobby is full: ${retryAfterMs > 0 ? 'come back later' : 'accepted'}`)
console.log(`acme: ${(await mail('acme', 'one-more@example.com')) ?? 'accepted'}`)

const enough = new Promise((resolve) => worker.on('completed', () => served.length >= 25 && resolve()))
await queue.resume()
await enough
await worker.close()
console.log(`of the first 25 emails, ${served.slice(0, 25).filter((tenant) => tenant === 'acme').length} were acme's`)

await queue.clearGroup('acme', { by: 'billing', reason: 'end of the example' })
await queue.obliterate({ force: true })
await queue.close()
