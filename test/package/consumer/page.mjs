// The dashboard, imported and required: prints the status of its page and of a script that the page names as JSON.
import { createRequire } from 'node:module'
import { fastify } from 'fastify'
import * as imported from 'sluice-dashboard'

const required = createRequire(import.meta.url)('sluice-dashboard')
const connection = { url: process.env.REDIS_URL }
const statuses = []
for (const { dashboard } of [imported, required]) {
  const app = fastify()
  await app.register(dashboard({ connection }), { prefix: '/queues' })
  const page = await app.inject('/queues/')
  const [, script] = /src="\.\/(assets\/[^"]+\.js)"/.exec(page.body)
  statuses.push([page.statusCode, (await app.inject(`/queues/${script}`)).statusCode])
  await app.close()
}
console.log(JSON.stringify(statuses))
