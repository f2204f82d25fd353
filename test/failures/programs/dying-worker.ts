import { ShapedWorker } from '../../../src/index.ts'

/** A worker that is killed by the jobs named `poison`, and does all others. */
const [url, prefix, name] = process.argv.slice(2) as [string, string, string]
const { hostname, port } = new URL(url)
const worker = new ShapedWorker(
  name,
  async (job) => {
    if (job.name !== 'poison') return
    // What it had to say of other jobs is said first.
    await new Promise((resolve) => setImmediate(resolve))
    process.kill(process.pid, 'SIGKILL')
    await new Promise(() => {})
  },
  {
    connection: { host: hostname, port: Number(port), maxRetriesPerRequest: null },
    prefix,
    concurrency: 2,
    lockDuration: 500,
    stalledInterval: 200,
  },
)
worker.on('error', (error) => process.send?.({ type: 'error', message: String(error) }))
