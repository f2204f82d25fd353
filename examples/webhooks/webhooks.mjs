// Delivers webhooks, each endpoint a group. The application calls `send`, `disable` and `replay`.
//   REDIS_URL=redis://localhost:6379 node webhooks.mjs
import { ShapedQueue, ShapedWorker } from 'sluice'
import { profiles } from 'sluice/egress'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'

// No endpoint gets more than 50 a second, or two at once.
const shape = { rate: '200/s', capacity: 10_000, groups: { rate: '50/s', concurrency: 2 } }
export const queue = new ShapedQueue('webhooks', { connection, prefix, shape })

/** 12 attempts, a minute after the first, then 2, 4, 8 … minutes: the last is 34 hours after the first. */
export function send(endpointId, url, event) {
  const retries = { attempts: 12, backoff: { type: 'exponential', delay: 60_000 } }
  return queue.add('webhook', { url, event }, { group: { id: endpointId }, ...retries })
}

async function deliver(job) {
  const { url, event } = job.data
  const response = await fetch(url, {
    method: 'POST',
    // The id is the same in each attempt, so that the customer can recognise a second delivery.
    headers: { 'content-type': 'application/json', 'webhook-id': job.id },
    body: JSON.stringify(event),
    // An endpoint that hangs fails its attempt, and frees the worker.
    signal: AbortSignal.timeout(10_000),
  })
  await response.text()
  if (!response.ok) throw Object.assign(new Error(`the endpoint answered ${response.status}`), { response })
}

export const worker = new ShapedWorker('webhooks', deliver, {
  ...{ connection, prefix, shape },
  concurrency: 50,
  // A refusal, or an endpoint that cannot be reached, holds that endpoint alone.
  feedback: profiles.http,
  feedbackScope: 'group',
  deadLetter: 'webhooks-dead',
  removeOnComplete: { count: 1000 },
  // The dead letter has all of the job.
  removeOnFail: { count: 0 },
})
process.once('SIGTERM', () => Promise.all([worker.close(), queue.close()]))

/** Nothing goes to the endpoint any more; new webhooks wait as long as it has places. */
export function disable(endpointId, reason) {
  return queue.pauseGroup(endpointId, { by: 'ops', reason })
}

/** What waited goes to the endpoint again, and so does what had failed. */
export async function replay(endpointId) {
  await queue.resumeGroup(endpointId, { by: 'ops', reason: 'fixed' })
  const { redriven } = await queue.redrive({
    ...{ from: 'webhooks-dead', by: 'ops', reason: 'fixed' },
    filter: ({ opts }) => opts.group.id === endpointId,
  })
  return redriven
}
