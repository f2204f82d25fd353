// Sends mail over SMTP through a provider that allows 50 emails a second.
//   REDIS_URL=redis://localhost:6379 SMTP_URL=smtps://user:password@host node smtp.mjs
import { createTransport } from 'nodemailer'
import { ShapedQueue, ShapedWorker, safeShape } from 'sluice'
import { profiles } from 'sluice/egress'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const provider = createTransport(process.env.SMTP_URL ?? 'smtp://localhost:2525')

// The 500 ms include the time to open a connection.
const { rate, burst } = safeShape({ quota: 50, windowMs: 1000, burst: 1, jitterMs: 500 })
const shape = { rate, burst, capacity: 10_000 }

export const queue = new ShapedQueue('smtp-mails', { connection, prefix, shape })
export const mail = (to, subject, text) => queue.add('mail', { to, subject, text }, { attempts: 5 })

const send = async (job) => {
  const { response } = await provider.sendMail({ from: 'shop@example.com', ...job.data })
  return response
}

export const worker = new ShapedWorker('smtp-mails', send, {
  ...{ connection, prefix, shape },
  concurrency: 20,
  feedback: profiles.smtp,
  removeOnComplete: { count: 1000 },
  removeOnFail: { count: 5000 },
})
process.once('SIGTERM', () => Promise.all([worker.close(), queue.close()]))
