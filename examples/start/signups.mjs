// 62 people sign up at once: each gets an email, or hears when to retry.
import { ShapedQueue } from 'sluice'
import { connection, prefix, shape } from './settings.mjs'

const queue = new ShapedQueue('tutorial', { connection, prefix, shape })
for (let i = 1; i <= 62; i++) {
  const offer = await queue.offer('welcome', { to: `user${i}@example.com` })
  if (offer.accepted) console.log(`user${i}: accepted as job ${offer.job.id}, ${offer.position} before it`)
  else console.log(`user${i}: full, come back in ${offer.retryAfterMs} ms`)
}
await queue.close()
