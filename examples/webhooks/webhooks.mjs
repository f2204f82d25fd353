// Delivers webhooks, with one group per endpoint. The application calls `send`, `disable` and `replay`.
//   REDIS_URL=redis://localhost:6379 node webhooks.mjs
import { ShapedQueue, ShapedWorker } from 'sluice'
import { profiles } from 'sluice/egress'

const connection = { url: process.env.REDIS_URL ?? 'redis://localhost:6379' }
const prefix = process.env.PREFIX ?? 'sluice-examples'

// An endpoint gets at most 50 webhooks a second, and two at once.
const shape = { rate: '200/s', capacity: 10_000, groups: { rate: '50/s', concurrency: 2 } }
export const queue = new ShapedQueue('webhooks', { connection, prefix, shape })

/** Retries after 1, 2, 4, 8 … minutes: the 12th and last attempt comes 34 hours after the first. */
export function send(endpointId, url, event) {
  const retries = { attempts: 12, backoff: { type: 'exponential', delay: 60_000 } }
  return queue.add('webhook', { url, event }, { group: { id: endpointId }, ...retries })
}

async function deliver(job) {
  const { url, event } = job.data
  const response = await fetch(url, {
    method: 'POST',
    // The id is the same in each attempt: the customer can recognise a second delivery.
    headers: { 'content-type': 'application/json', 'webhook-id': job.id },
    body: JSON.stringify(event),
    // If the endpoint hangs, the attempt fails and the worker is free again.
    signal: AbortSignal.timeout(10_000),
  })
  await response.text()
  if (!response.ok) throw Object.assign(new Error(`the endpoint answered ${response.status}`), { response })
}

export const worker = new ShapedWorker('webhooks', deliver, {
  ...{ connection, prefix, shape },
  concurrency: 50,
  // A refusal or a failed connection holds this endpoint only.
  feedback: profiles.http,
  feedbackScope: 'group',
  deadLetter: 'webhooks-dead',
  removeOnComplete: { count: 1000 },
  // The dead letter keeps the whole job.
  removeOnFail: { count: 0 },
})
process.once('SIGTERM', () => Promise.all([worker.close(), queue.close()]))

/** Stops all calls to the endpoint; new webhooks wait as long as its group has free places. */
export function disable(endpointId, reason) {
  return queue.pauseGroup(endpointId, { by: 'ops', reason })
}

/** Delivers what has waited, and retries what has failed. */
export async function replay(endpointId) {
  await queue.resumeGroup(endpointId, { by: 'ops', reason: 'fixed' })
  const { redriven } = await queue.redrive({
    ...{ from: 'webhooks-dead', by: 'ops', reason: 'fixed' },
    filter: ({ opts }) => opts.group.id === endpointId,
  })
  return redriven
}
