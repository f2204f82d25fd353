// Sends mail through the HTTP API of a provider that allows 50 requests a second.
//   REDIS_URL=redis://localhost:6379 MAIL_API=https://… MAIL_API_KEY=… node api.mjs
import { ShapedQueue, ShapedWorker, safeShape } from 'sluice'
import { profiles } from 'sluice/egress'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const api = process.env.MAIL_API ?? 'https://api.example.com/v1/mails'

// At most 50 in any second of the provider's clock, even if some requests take 500 ms longer to arrive.
const { rate, burst } = safeShape({ quota: 50, windowMs: 1000, burst: 1, jitterMs: 500 })
export const shape = { rate, burst, capacity: 10_000 }

export const queue = new ShapedQueue('mails', { connection, prefix, shape })
export const mail = (to, subject, text) => queue.add('mail', { to, subject, text }, { attempts: 5 })

async function send(job) {
  const response = await fetch(api, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${process.env.MAIL_API_KEY}` },
    body: JSON.stringify(job.data),
    signal: AbortSignal.timeout(10_000),
  })
  await response.text()
  // The profile can read from the error's response when to try again.
  if (!response.ok) throw Object.assign(new Error(`the provider answered ${response.status}`), { response })
}

export const worker = new ShapedWorker('mails', send, {
  ...{ connection, prefix, shape },
  // Enough for 33 requests a second if each takes up to 0.6 s.
  concurrency: 20,
  // A refusal pauses all workers for as long as it says; `adapt` also lowers the rate, and raises it again.
  feedback: profiles.http,
  adapt: true,
  removeOnComplete: { count: 1000 },
  removeOnFail: { count: 5000 },
})
process.once('SIGTERM', () => Promise.all([worker.close(), queue.close()]))
