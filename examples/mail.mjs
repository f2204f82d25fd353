// Plays two providers that allow 50 emails a second, one with an HTTP API and one with SMTP, for the programs in mail.
// Then the API allows only 10, and its refusals hold the queue and lower the rate. Needs a Redis: REDIS_URL, or one on
// this machine, and the packages nodemailer and smtp-server.
//   npm run build && node examples/mail.mjs
import { once } from 'node:events'
import { createServer } from 'node:http'
import { SMTPServer } from 'smtp-server'

/** Whether a provider takes one more in the last second, and how many it refused. */
function provider() {
  const arrivals = []
  const counts = { allowed: 50, refused: 0 }
  const takes = () => {
    const now = performance.now()
    const isTaken = arrivals.filter((at) => at > now - 1000).length < counts.allowed
    if (isTaken) arrivals.push(now)
    else counts.refused += 1
    return isTaken
  }
  return { counts, takes }
}

const http = provider()
const httpServer = createServer((_request, response) => {
  if (http.takes()) return response.end('accepted')
  response.writeHead(429, { 'retry-after': 1 }).end()
}).listen(0, '127.0.0.1')

const smtp = provider()
const smtpServer = new SMTPServer({
  disabledCommands: ['AUTH', 'STARTTLS'],
  onMailFrom(_address, _session, callback) {
    if (smtp.takes()) return callback()
    callback(Object.assign(new Error('4.7.0 too many messages'), { responseCode: 421 }))
  },
  onData: (stream, _session, callback) => void stream.resume().on('end', callback),
})
smtpServer.listen(0, '127.0.0.1')
await Promise.all([once(httpServer, 'listening'), once(smtpServer.server, 'listening')])

process.env.MAIL_API = `http://127.0.0.1:${httpServer.address().port}`
process.env.SMTP_URL = `smtp://127.0.0.1:${smtpServer.server.address().port}`
const byApi = await import('./mail/api.mjs')
const bySmtp = await import('./mail/smtp.mjs')

async function sendAll({ mail, worker }, count) {
  let sent = 0
  const allSent = new Promise((resolve, reject) => {
    worker.on('completed', () => ++sent === count && resolve())
    worker.on('failed', (_job, error) => reject(error))
  })
  for (let i = 0; i < count; i++) await mail(`user${i}@example.com`, 'Welcome', 'Hello!')
  await allSent
  return sent
}

const { limit, period } = byApi.shape.rate
console.log(`asked for 50/s, given ${((limit / period) * 1000).toFixed(1)}/s`)
console.log(`${await sendAll(byApi, 60)} emails over the API, ${http.counts.refused} refused`)
console.log(`${await sendAll(bySmtp, 30)} emails over SMTP, ${smtp.counts.refused} refused`)

const changes = []
byApi.worker.on('feedback', (change) => changes.push(change))
http.counts.allowed = 10
const mailsThen = await sendAll(byApi, 20)
const pause = changes.find(({ kind }) => kind === 'pause')
const slow = changes.find(({ kind }) => kind === 'slow')
console.log(`the queue paused: ${pause.reason}`)
console.log(`the rate fell from ${slow.from.toFixed(1)}/s to ${slow.rate.toFixed(1)}/s`)
console.log(`${mailsThen} more emails, none lost`)

for (const { worker, queue } of [byApi, bySmtp]) {
  await worker.close()
  await queue.obliterate({ force: true })
  await queue.close()
}
smtpServer.close()
httpServer.close()
httpServer.closeAllConnections()
