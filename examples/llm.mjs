// Calls of two models for several customers: requests and tokens of each model, tokens of each customer by its plan, and
// one limit of the whole account, from which a web route takes too. Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/llm.mjs
import { Redis } from 'ioredis'
import { ShapedQueue, ShapedWorker } from 'sluice'
import { createLimiter } from 'sluice/limits'

const url = process.env.REDIS_URL ?? 'redis://localhost:6379'
const prefix = process.env.PREFIX ?? 'sluice-examples'
const connection = { url }

// What the provider allows the account. `shared`: one state for every queue and limiter of that name.
const account = { name: 'account', algorithm: 'sliding-window-log', rate: '40/s' }
// Free customers; each plan names what differs.
const plans = { pro: { rate: '4000/s', burst: 2000 } }
const shape = {
  capacity: 1000,
  groups: { capacity: 100 },
  limits: [
    { ...account, shared: true, prefix },
    { name: 'requests', by: 'model', rate: '30/s', burst: 5 },
    { name: 'tokens', by: 'model', unit: 'tokens', algorithm: 'token-bucket', rate: '2000/s', burst: 1500 },
    { name: 'plan', by: 'group', unit: 'tokens', rate: '400/s', burst: 400, tiers: plans },
  ],
}

const queue = new ShapedQueue('calls', { connection, prefix, shape })
const worker = new ShapedWorker(
  'calls',
  async (job) => {
    // The job was charged the 200 tokens that it may use. Once it is known what it used, the rest is given back.
    await job.settleCost({ tokens: 120 })
    return 120
  },
  { connection, prefix, shape, concurrency: 20, autorun: false, removeOnComplete: { count: 1000 } },
)

const call = (customer, model, tier) => ({
  name: 'call',
  data: { customer, model },
  opts: { group: { id: customer }, keys: { model }, tier, costs: { tokens: 200 } },
})
const calls = (count, ...of) => Array.from({ length: count }, () => call(...of))
await queue.addBulk([
  ...calls(6, 'hobby', 'large'),
  ...calls(6, 'acme', 'large', 'pro'),
  ...calls(6, 'acme', 'small', 'pro'),
])

// A person waits for this one, so it does not queue: it takes from the account beside the jobs.
const redis = new Redis(url)
const limiter = createLimiter(redis, { ...account, prefix, timeoutMs: 1000 })
const answer = await limiter.take(undefined, { cost: 3 })
console.log(
  `three calls at once are ${answer.allowed ? 'allowed' : 'refused'}, the account has ${answer.remaining} left`,
)

const startsUs = { hobby: [], acme: [] }
worker.on('departed', (job, { departureTimeUs }) => startsUs[job.data.customer].push(departureTimeUs))
let done = 0
const allDone = new Promise((resolve) => worker.on('completed', () => ++done === 18 && resolve()))
worker.run()
// What holds the free customer: its plan, not the model that others use too.
while (startsUs.acme.length < 12) await new Promise((resolve) => worker.once('departed', resolve))
const { heldBy } = (await queue.getGroup('hobby')) ?? {}
await allDone

const tookMs = (starts) => Math.round((starts.at(-1) - starts[0]) / 1000)
console.log(`hobby is held by ${heldBy}: its 6 calls started within ${tookMs(startsUs.hobby)} ms`)
console.log(`the 12 calls of acme started within ${tookMs(startsUs.acme)} ms`)

await worker.close()
await queue.obliterate({ force: true })
await queue.close()
await limiter.reset()
await redis.unlink(`${prefix}:limit:{account}`)
redis.disconnect()
