import { ShapedQueue } from '../../../src/index.ts'

/** Puts dead letters back until it is killed. */
const [url, prefix, name, from] = process.argv.slice(2) as [string, string, string, string]
const { hostname, port } = new URL(url)
const queue = new ShapedQueue(name, { connection: { host: hostname, port: Number(port) }, prefix })
await queue.redrive({ from })
await queue.close()
