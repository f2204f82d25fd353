import { randomUUID } from 'node:crypto'
import { Queue } from 'bullmq'
import { fastify, type RouteHandlerMethod } from 'fastify'
import { createGateway, fastifyMiddleware } from 'sluice/http'
import type { OpenServer } from './listening.ts'
import type { JobServer, ServerSpec } from './protocol.ts'

/** The rate of the queue. */
const PER_SECOND = 1000

/** The schema of a job's data, the same for all servers. */
const DATA = {
  type: 'object',
  required: ['to', 'subject', 'text'],
  additionalProperties: false,
  properties: { to: { type: 'string', maxLength: 320 }, subject: { type: 'string' }, text: { type: 'string' } },
} as const
const BODY = { type: 'object', required: ['data'], additionalProperties: false, properties: { data: DATA } } as const

type JobSpec = Omit<ServerSpec, 'server' | 'perMinute'>

type Handler = (queue: Queue, spec: JobSpec) => RouteHandlerMethod

/** Gives the gateway's answer, as far as BullMQ can: the id is unguessable, but nothing is bounded. */
const sameAnswer: Handler = (queue, { queue: name, capacity }) => {
  const policies = `"${name}-admission";q=${capacity}, "${name}-egress";q=${PER_SECOND};w=1`
  return async (request, reply) => {
    const { data } = request.body as { data: unknown }
    const [job, waiting] = await Promise.all([queue.add('job', data, { jobId: randomUUID() }), queue.getWaitingCount()])
    return reply
      .code(202)
      .headers({
        'cache-control': 'no-store',
        location: `/queues/${name}/jobs/${job.id}`,
        'ratelimit-policy': policies,
        ratelimit: `"${name}-admission";r=${Math.max(0, capacity - waiting)}`,
      })
      .send({
        id: job.id,
        state: 'waiting',
        position: waiting,
        startsAt: new Date(Date.now() + (waiting / PER_SECOND) * 1000),
      })
  }
}

const idAlone: Handler =
  (queue, { queue: name }) =>
  async (request, reply) => {
    const { id } = await queue.add('job', (request.body as { data: unknown }).data)
    return reply.code(202).header('location', `/queues/${name}/jobs/${id}`).send({ id, state: 'waiting' })
  }

/** A typical route without Sluice. */
async function addingRoute(spec: JobSpec, handler: Handler): Promise<OpenServer> {
  const queue = new Queue(spec.queue, { connection: { ...spec.redis, maxRetriesPerRequest: null } })
  await queue.waitUntilReady()
  const app = fastify()
  app.post('/queues/:queue/jobs', { schema: { body: BODY } }, handler(queue, spec))
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  return { url, close: () => app.close().then(() => queue.close()) }
}

async function gatewayServer({ redis, queue, capacity }: JobSpec): Promise<OpenServer> {
  const shape = { capacity, rate: `${PER_SECOND}/s` } as const
  const gateway = createGateway({ connection: { ...redis }, queues: { [queue]: { shape, schema: DATA } } })
  await gateway.waitUntilReady()
  const app = fastify()
  await app.register(fastifyMiddleware(gateway))
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  return { url, close: () => app.close().then(() => gateway.close()) }
}

export function openJobServer({ server, ...spec }: ServerSpec & { server: JobServer }): Promise<OpenServer> {
  if (server === 'gateway') return gatewayServer(spec)
  return addingRoute(spec, server === 'queue.add' ? sameAnswer : idAlone)
}
