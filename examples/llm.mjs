// Plays the provider of two models for the programs in llm: two customers call them, one with a plan, and a request takes
// from the same account as the jobs. Needs a Redis: REDIS_URL, or one on this machine.
//   npm run build && node examples/llm.mjs
import { once } from 'node:events'
import { createServer } from 'node:http'
import { ask, prefix, queue } from './llm/queue.mjs'
import { limiter, mayCall, redis } from './llm/request.mjs'

const answer = { choices: [{ message: { content: 'Yes.' } }], usage: { total_tokens: 120 } }
const server = createServer((_request, response) => {
  response.setHeader('content-type', 'application/json').end(JSON.stringify(answer))
}).listen(0, '127.0.0.1')
await once(server, 'listening')
process.env.LLM_API = `http://127.0.0.1:${server.address().port}`

// A prompt of 400 characters and at most 100 more tokens: 200 tokens.
const call = { prompt: 'Is it so? '.repeat(40), maxTokens: 100 }
for (let i = 0; i < 6; i++) {
  await ask({ ...call, customer: 'hobby', model: 'large' })
  await ask({ ...call, customer: 'acme', plan: 'pro', model: 'large' })
  await ask({ ...call, customer: 'acme', plan: 'pro', model: 'small' })
}

const { allowed, remaining } = await mayCall(3)
console.log(`three calls at once are ${allowed ? 'allowed' : 'refused'}, the account has ${remaining} left`)

const { worker } = await import('./llm/worker.mjs')
const startsUs = { hobby: [], acme: [] }
worker.on('departed', (job, { departureTimeUs }) => startsUs[job.opts.group.id].push(departureTimeUs))
let done = 0
const allDone = new Promise((resolve, reject) => {
  worker.on('completed', () => ++done === 18 && resolve())
  worker.on('failed', (_job, error) => reject(error))
})
while (startsUs.acme.length < 12) await once(worker, 'departed')
// What holds the free customer: its plan, not the model that others use too.
let heldBy
while (!heldBy && startsUs.hobby.length < 6) ({ heldBy } = await queue.getGroup('hobby'))
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
server.close()
server.closeAllConnections()
