import { ShapedWorker } from '../../../src/index.ts'

/** Takes one batch, reports it, and never ends it. Arguments: queue, prefix, connection as JSON, size. */
const [name, prefix, connection, size] = process.argv.slice(2) as [string, string, string, string]
new ShapedWorker(
  name,
  async (job) => {
    process.send?.({ type: 'batch', ids: job.getBatch().map(({ id }) => id) })
    await new Promise(() => {})
  },
  {
    connection: JSON.parse(connection),
    prefix,
    lockDuration: 1000,
    stalledInterval: 200,
    batch: { size: Number(size) },
  },
)
