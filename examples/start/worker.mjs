// Sends the emails. Start as many of these as you like: they share one rate.
import { createTransport } from 'nodemailer'
import { ShapedWorker } from 'sluice'
import { connection, prefix, shape, smtpPort } from './settings.mjs'

const mailServer = createTransport({ host: '127.0.0.1', port: smtpPort, pool: true })

async function send(job) {
  await mailServer.sendMail({ from: 'shop@example.com', to: job.data.to, subject: 'Welcome', text: 'Hello!' })
}

// By default, BullMQ keeps every finished job.
const keep = { removeOnComplete: { count: 1000 }, removeOnFail: { count: 5000 } }
const worker = new ShapedWorker('tutorial', send, { connection, prefix, shape, concurrency: 5, ...keep })
console.log('worker started')

process.once('SIGINT', async () => {
  await worker.close()
  mailServer.close()
})
