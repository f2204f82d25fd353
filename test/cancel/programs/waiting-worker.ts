import { ShapedWorker } from '../../../src/index.ts'

/** A worker whose jobs run until they are aborted. It says when one has begun, and for what reason it was aborted. */
const [url, prefix, name] = process.argv.slice(2) as [string, string, string]
const { hostname, port } = new URL(url)
const worker = new ShapedWorker(
  name,
  async (job, _token, signal) => {
    process.send?.({ type: 'begun', id: job.id })
    await new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)))
  },
  {
    connection: { host: hostname, port: Number(port), maxRetriesPerRequest: null },
    prefix,
    allowUnshaped: true,
    lockDuration: 1000,
    stalledInterval: 200,
  },
)
worker.on('failed', (job, error) => process.send?.({ type: 'failed', id: job?.id, message: error.message }))
worker.on('error', (error) => process.send?.({ type: 'error', message: String(error) }))
