import { Queue } from 'bullmq'
import { fastify } from 'fastify'
import { createGateway, fastifyDoor } from 'sluice/http'
import type { OpenDoor } from './listening.ts'
import type { DoorSpec, JobDoor } from './protocol.ts'

/** What both check of a job. */
const DATA = {
  type: 'object',
  required: ['to', 'subject', 'text'],
  additionalProperties: false,
  properties: { to: { type: 'string', maxLength: 320 }, subject: { type: 'string' }, text: { type: 'string' } },
} as const
const BODY = { type: 'object', required: ['data'], additionalProperties: false, properties: { data: DATA } } as const

type JobSpec = Omit<DoorSpec, 'door' | 'perMinute'>

/** What one would write without Sluice. */
async function addingRoute({ redis, queue: name }: JobSpec): Promise<OpenDoor> {
  const queue = new Queue(name, { connection: { ...redis, maxRetriesPerRequest: null } })
  await queue.waitUntilReady()
  const app = fastify()
  app.post('/queues/:queue/jobs', { schema: { body: BODY } }, async (request, reply) => {
    const { id } = await queue.add('job', (request.body as { data: unknown }).data)
    return reply.code(202).header('location', `/queues/${name}/jobs/${id}`).send({ id, state: 'waiting' })
  })
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  return { url, close: () => app.close().then(() => queue.close()) }
}

async function gatewayDoor({ redis, queue, capacity }: JobSpec): Promise<OpenDoor> {
  const shape = { capacity, rate: '1000/s' } as const
  const gateway = createGateway({ connection: { ...redis }, queues: { [queue]: { shape, schema: DATA } } })
  await gateway.waitUntilReady()
  const app = fastify()
  await app.register(fastifyDoor(gateway))
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  return { url, close: () => app.close().then(() => gateway.close()) }
}

export function openJobDoor({ door, ...spec }: DoorSpec & { door: JobDoor }): Promise<OpenDoor> {
  return door === 'gateway' ? gatewayDoor(spec) : addingRoute(spec)
}
