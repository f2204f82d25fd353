// Removes what a queue and its dead letters hold of one customer, whose number is the id of its group.
import { UnrecoverableError } from 'bullmq'
import { Redis } from 'ioredis'
import { ShapedQueue, ShapedWorker } from 'sluice'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const shape = { rate: '500/s', capacity: 1000, groups: {} }

const queue = new ShapedQueue('mails', { connection, prefix, shape })
const letters = new ShapedQueue('mails-dead', { connection, prefix, allowUnshaped: true })

/** Run it again until it returns 0: it aborts running jobs, and removes them the next time. */
async function erase(customer, reason) {
  const who = { by: 'privacy', reason }
  const cancelled = await queue.cancelJobs({ group: customer }, { ...who, remove: true })
  let erased = Object.values(cancelled).reduce((sum, count) => sum + count, 0)
  for (const job of await queue.getJobs(['completed', 'failed'])) {
    if (job?.opts.group?.id === customer) erased += await queue.remove(job.id)
  }
  for (const letter of await letters.getJobs(['waiting'])) {
    if (letter?.data.opts.group?.id === customer) erased += await letters.remove(letter.id)
  }
  await queue.clearGroup(customer, who)
  await queue.trimEvents(0)
  return erased
}

// Of each customer: an email that is sent, one that is refused, and one for tomorrow.
const worker = new ShapedWorker('mails', send, { connection, prefix, shape, deadLetter: 'mails-dead' })
async function send(job) {
  await job.log(`to ${job.data.to}`)
  if (job.name === 'refused') throw new UnrecoverableError(`no mailbox ${job.data.to}`)
  return job.data.to
}
let ended = 0
const allEnded = new Promise((resolve) => {
  const count = () => ++ended === 4 && resolve()
  worker.on('completed', count).on('failed', count)
})
for (const customer of ['4711', '4712']) {
  const data = { to: `ann@${customer}.example` }
  await queue.add('sent', data, { group: { id: customer } })
  await queue.add('refused', data, { group: { id: customer } })
  await queue.add('tomorrow', data, { group: { id: customer }, delay: 86_400_000 })
}
await queue.setGroup('4711', { weight: 2 }, { by: 'billing', reason: 'pro plan' })
await allEnded
// Its last report, which has the reasons of failures, goes with it.
await worker.close()

const redis = new Redis(connection.url)
const READ = {
  string: ['get'],
  hash: ['hgetall'],
  list: ['lrange', 0, -1],
  set: ['smembers'],
  zset: ['zrange', 0, -1],
  stream: ['xrange', '-', '+'],
}
/** How many keys have the text in their name or value. */
async function keysWith(text) {
  let found = 0
  for (const key of await redis.keys(`${prefix}:*`)) {
    const [command, ...range] = READ[await redis.type(key)]
    const value = JSON.stringify(await redis.call(command, key, ...range))
    if (key.includes(text) || value.includes(text)) found += 1
  }
  return found
}
console.log(`keys with ann@4711.example: ${await keysWith('ann@4711.example')}`)
console.log(`erased: ${await erase('4711', 'request 1')}, then ${await erase('4711', 'request 1')}`)
console.log(`keys with ann@4711.example: ${await keysWith('ann@4711.example')}`)
console.log(`jobs of 4712: ${(await queue.getJobs(['completed', 'failed', 'delayed'])).length}`)

await redis.quit()
await queue.obliterate({ force: true })
await letters.obliterate({ force: true })
await queue.close()
await letters.close()
