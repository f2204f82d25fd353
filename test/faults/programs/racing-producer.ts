import { QueueFullError, ShapedQueue } from '../../../src/index.ts'

/** Opens a queue, says so, and on the first message adds many jobs at once; tells what came of them. */
const [url, prefix, name, adds] = process.argv.slice(2) as [string, string, string, string]
const { hostname, port } = new URL(url)
const queue = new ShapedQueue(name, {
  connection: { host: hostname, port: Number(port), maxRetriesPerRequest: null },
  prefix,
  shape: { rate: '1/min', capacity: 100 },
  declarer: 'race',
})
await queue.waitUntilReady()
process.once('message', async () => {
  const outcomes = await Promise.allSettled(Array.from({ length: Number(adds) }, () => queue.add('race', {})))
  const refusals = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as unknown] : []))
  const full = refusals.filter((error): error is QueueFullError => error instanceof QueueFullError)
  process.send?.({
    type: 'outcome',
    accepted: outcomes.length - refusals.length,
    full: full.length,
    retryAfterMs: full.map(({ retryAfterMs }) => retryAfterMs),
    others: refusals.filter((error) => !(error instanceof QueueFullError)).map(String),
  })
  await queue.close()
  process.disconnect()
})
process.send?.({ type: 'ready' })
