import { ShapedWorker } from '../../../src/index.ts'

/**
 * A worker whose wall clock is wrong by so many ms; tells of each start when it was, on the monotonic clock that all
 * processes of the machine share.
 */
const [url, name, skewMs] = process.argv.slice(2) as [string, string, string]
const TrueDate = Date
const nowMs = () => TrueDate.now() + Number(skewMs)
globalThis.Date = new Proxy(TrueDate, {
  construct: (target, args) => (args.length > 0 ? Reflect.construct(target, args) : new target(nowMs())),
  get: (target, key) => (key === 'now' ? nowMs : Reflect.get(target, key)),
})

const { hostname, port } = new URL(url)
const counts = { late: 0, uncertain: 0 }
const worker = new ShapedWorker(name, async () => {}, {
  connection: { host: hostname, port: Number(port), maxRetriesPerRequest: null },
  concurrency: 100,
  removeOnComplete: { count: 0 },
})
worker.on('departed', (_job, departure) => {
  // The processor is called in the same turn.
  process.send?.({ type: 'started', startedUs: Number(process.hrtime.bigint() / 1000n), ...departure })
})
worker.on('late', () => {
  counts.late += 1
})
worker.on('error', (error) => {
  if (error.name === 'UncertainClockError') counts.uncertain += 1
})
process.on('message', async (message) => {
  if (message === 'counts') return process.send?.({ type: 'counts', ...counts })
  await worker.close()
  process.disconnect()
})
await worker.waitUntilReady()
process.send?.({ type: 'ready' })
