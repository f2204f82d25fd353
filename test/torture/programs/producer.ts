import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { QueueUnavailableError, ShapedQueue } from '../../../src/index.ts'
import { noteSamples } from '../samples.ts'
import { SHAPE } from '../shape.ts'

/** Adds one job after the other until SIGTERM; what it tries, and what came of it, is in the file at once. */
const [url, queueName, name, log, role] = process.argv.slice(2) as [string, string, string, string, string?]
const note = (...words: unknown[]) => appendFileSync(log, `${words.join(' ')}\n`)
process.on('unhandledRejection', (reason) => note('unhandled', String(reason)))

const { hostname, port } = new URL(url)
const queue = new ShapedQueue(queueName, {
  connection: { host: hostname, port: Number(port), maxRetriesPerRequest: null, retryStrategy: () => 50 },
  shape: SHAPE,
  declarer: 'torture',
  admitTimeoutMs: 500,
  defaultJobOptions: { removeOnComplete: { count: 5000 } },
})
queue.on('error', () => {})
queue.on('stateLoss', () => note('loss'))
let stopped = false
process.once('SIGTERM', () => {
  stopped = true
})
await queue.waitUntilReady()
if (role === 'witness') noteSamples(note)
process.send?.({ type: 'ready' })

/** Most are plain jobs. */
function kindOf(n: number): object {
  if (n % 7 === 0) return { priority: 1 + (n % 3) }
  if (n % 11 === 0) return { delay: 200 }
  return {}
}

async function add(jobId: string, kind: object): Promise<void> {
  note('tried', jobId)
  try {
    const offer = await queue.offer('job', {}, { jobId, ...kind })
    if (offer.accepted) return note('accepted', jobId, offer.position ?? 0)
    note('refused', jobId)
    await sleep(Math.min(offer.retryAfterMs, 100))
  } catch (error) {
    if (!(error instanceof QueueUnavailableError)) note('unhandled', String(error))
    else if (error.mayBeStored) note('unsure', jobId)
    else note('refused', jobId)
    await sleep(20)
  }
}

for (let n = 0; !stopped; n++) {
  await add(`${name}-${n}`, kindOf(n))
  await sleep(5)
}
await queue.close()
process.disconnect()
