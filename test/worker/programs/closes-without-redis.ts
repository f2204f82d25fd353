import { ShapedWorker } from '../../../src/index.ts'

/** Starts a worker, cuts nothing itself, and closes it by force when told to; then the process has to end by itself. */
const [name, prefix, connection] = process.argv.slice(2) as [string, string, string]
const worker = new ShapedWorker(name, async () => {}, { connection: JSON.parse(connection), prefix })
worker.on('error', () => {})
process.once('message', () => {
  void worker.close(true).then(() => {
    process.send?.({ type: 'closed' })
    process.disconnect()
  })
})
process.send?.({ type: 'ready' })
