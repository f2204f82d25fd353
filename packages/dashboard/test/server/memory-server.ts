/**
 * A dashboard in a process of its own, over the Redis of DASHBOARD_REDIS. Sends its address, and what its heap holds each
 * time that it is asked.
 */
import { fastify } from 'fastify'
import { dashboard } from '../../src/index.ts'

const app = fastify()
await app.register(dashboard(JSON.parse(process.env.DASHBOARD_REDIS ?? '{}')))
const url = await app.listen({ host: '127.0.0.1', port: 0 })
process.send?.({ url: `${url}/` })
process.on('message', () => {
  globalThis.gc?.()
  process.send?.({ heapUsed: process.memoryUsage().heapUsed })
})
process.on('disconnect', () => process.exit())
