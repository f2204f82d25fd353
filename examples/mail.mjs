// Mails through a provider that allows 20 a second and refuses what comes beyond that. Needs a Redis: REDIS_URL, or one on
// this machine, and the packages nodemailer and smtp-server.
//   npm run build && node examples/mail.mjs
import { once } from 'node:events'
import { createTransport } from 'nodemailer'
import { ShapedQueue, ShapedWorker, safeShape } from 'sluice'
import { profiles } from 'sluice/egress'
import { SMTPServer } from 'smtp-server'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'
const MAILS = 30

// The provider: a sliding second, and 421 for more than 20 mails in it.
const arrivals = []
let refused = 0
const provider = new SMTPServer({
  disabledCommands: ['AUTH', 'STARTTLS'],
  onMailFrom(_address, _session, callback) {
    const now = performance.now()
    if (arrivals.filter((at) => at > now - 1000).length < 20) {
      arrivals.push(now)
      return callback()
    }
    refused += 1
    callback(Object.assign(new Error('4.7.0 too many messages'), { responseCode: 421 }))
  },
  onData: (stream, _session, callback) => void stream.resume().on('end', callback),
})
provider.listen(0, '127.0.0.1')
await once(provider.server, 'listening')

// 20 per second at the provider, and mails may arrive up to 500 ms later than others: `safeShape` leaves room for that.
const { rate, burst } = safeShape({ quota: 20, windowMs: 1000, burst: 1, jitterMs: 500 })
const shape = { rate, burst, capacity: 10_000 }

const mailServer = createTransport({ host: '127.0.0.1', port: provider.server.address().port, pool: true })
const send = async (job) => {
  await mailServer.sendMail({ from: 'shop@example.com', to: job.data.to, subject: 'Welcome', text: 'Hello!' })
}
const queue = new ShapedQueue('mails', { connection, prefix, shape })
// If the provider still refuses, the whole fleet waits for as long as it says, and no attempt is used up.
const worker = new ShapedWorker('mails', send, {
  ...{ connection, prefix, shape },
  concurrency: 5,
  feedback: profiles.smtp,
})

let sent = 0
const allSent = new Promise((resolve, reject) => {
  worker.on('completed', () => ++sent === MAILS && resolve())
  worker.on('failed', (_job, error) => reject(error))
})
await queue.addBulk(Array.from({ length: MAILS }, (_, i) => ({ name: 'mail', data: { to: `user${i}@example.com` } })))
await allSent
console.log(`${sent} mails sent, ${refused} refused`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
mailServer.close()
provider.close()
