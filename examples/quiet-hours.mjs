// Emails of several customers: none at night by the clock of a customer that wants that, and more each day from a
// domain that is new. Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/quiet-hours.mjs
import { ShapedQueue, ShapedWorker } from 'sluice'

const prefix = process.env.PREFIX ?? 'sluice-examples'
const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
// The customer's time zone; here, domains' days also begin at its midnight.
const timeZone = process.env.TIME_ZONE ?? 'Europe/Berlin'

const shape = {
  rate: '50/s',
  // After ten minutes without an email, the rate rises to its full value within a minute.
  rampUp: { from: 0.2, overMs: 60_000, afterIdleMs: 600_000 },
  capacity: 10_000,
  groups: {},
  limits: [
    { name: 'customer', by: 'group', rate: '10/s', burst: 5 },
    { name: 'warm-up', by: 'domain', timeZone, warmUp: { start: 3, factor: 1.5, until: 5000 } },
  ],
}
const queue = new ShapedQueue('mails', { connection, prefix, shape })

// One customer's quiet hours, in its own time zone: new jobs are accepted, and wait, while its group has places.
const by = { by: 'support', reason: 'ticket 4711' }
const day = { schedule: [{ from: '08:00', to: '20:00', rate: '10/s' }, { rate: 0 }], timeZone }
await queue.setLimit('customer', 'acme', { rate: day }, by)
// A domain that has sent for weeks continues on a later day of the plan; others start on day 1.
await queue.setLimit('warm-up', 'old.example', { day: 9 }, by)

const mails = (count, customer, domain) =>
  Array.from({ length: count }, () => ({ name: 'mail', data: {}, opts: { group: { id: customer }, keys: { domain } } }))
await queue.addBulk([
  ...mails(5, 'acme', 'old.example'),
  ...mails(5, 'globex', 'old.example'),
  ...mails(5, 'globex', 'new.example'),
])

const send = async (_job) => {
  // … hand the email to the provider
}
const worker = new ShapedWorker('mails', send, {
  ...{ connection, prefix, shape },
  removeOnComplete: { count: 1000 },
  removeOnFail: { count: 5000 },
})

let sent = 0
const leave = new Promise((resolve) => worker.on('completed', () => ++sent === 8 && resolve()))
await leave

const acme = await queue.getLimit('customer', 'acme')
console.log(`acme: quiet for ${Math.ceil(acme.retryAfterMs / 3_600_000)} h`)
for (const domain of ['old.example', 'new.example']) {
  const { day, days, inForce, remaining } = await queue.getLimit('warm-up', domain)
  console.log(`${domain}: day ${day} of ${days}, ${remaining} of ${inForce.rate} left`)
}
console.log(`${(await queue.meter()).depth} emails wait`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
