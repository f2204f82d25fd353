import { ShapedWorker } from '../../../src/index.ts'

/** A worker whose jobs never end. Arguments: queue, prefix, connection as JSON, ms that its locks last. */
const [name, prefix, connection, lockDuration] = process.argv.slice(2) as [string, string, string, string]
const worker = new ShapedWorker(name, () => new Promise(() => {}), {
  connection: JSON.parse(connection),
  prefix,
  concurrency: 5,
  lockDuration: Number(lockDuration),
})
worker.on('departed', ({ id }) => process.send?.({ type: 'started', id }))
worker.on('error', (error) => process.send?.({ type: 'error', message: String(error) }))
