import { ShapedWorker } from '../../../src/index.ts'

/** Works on a queue until it is told to stop; reports each departure. Arguments: queue, prefix, connection as JSON, concurrency. */
const [name, prefix, connection, concurrency] = process.argv.slice(2) as [string, string, string, string]
const worker = new ShapedWorker(name, async () => {}, {
  connection: JSON.parse(connection),
  prefix,
  concurrency: Number(concurrency),
  autorun: false,
})
worker.on('departed', (job, departure) =>
  process.send?.({ type: 'departed', id: job.id, wallMs: Date.now(), ...departure }),
)
process.once('SIGTERM', () => void worker.close().then(() => process.disconnect()))
await worker.waitUntilReady()
process.once('message', () => void worker.run())
process.send?.({ type: 'ready' })
