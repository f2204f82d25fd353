import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import fastifyRateLimit from '@fastify/rate-limit'
import { Queue } from 'bullmq'
import express from 'express'
import { rateLimit as expressRateLimit } from 'express-rate-limit'
import { type FastifyInstance, fastify, type RouteHandlerMethod } from 'fastify'
import { Redis } from 'ioredis'
import { RedisStore } from 'rate-limit-redis'
import { createLimiter } from 'sluice/limits'
import {
  byApiKey,
  connectMiddleware,
  createGateway,
  fastifyMiddleware,
  type Middleware,
  rateLimit,
} from 'sluice-gateway'
import { connectionTo, type RedisAddress } from './harness/figure.ts'

export interface ServerSpec {
  readonly server: Server
  readonly redis: RedisAddress
  /** The queue of the jobs, and its capacity. */
  readonly queue?: string
  readonly capacity?: number
  /** Calls that a limited route allows per minute and key. */
  readonly perMinute?: number
}

interface OpenServer {
  readonly url: string
  close(): Promise<unknown>
}

type Spec = Required<Omit<ServerSpec, 'server'>>
type Open = (spec: Spec) => Promise<OpenServer>

async function onFastify(register: (app: FastifyInstance) => unknown, end = async () => {}): Promise<OpenServer> {
  const app = fastify()
  await register(app)
  return { url: await app.listen({ host: '127.0.0.1', port: 0 }), close: () => app.close().then(end) }
}

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

type Handler = (queue: Queue, capacity: number) => RouteHandlerMethod

/** Gives the gateway's answer, as far as BullMQ can: the id is unguessable, but nothing is bounded. */
const sameAnswer: Handler = (queue, capacity) => async (request, reply) => {
  const { name } = queue
  const { data } = request.body as { data: unknown }
  const [job, waiting] = await Promise.all([queue.add('job', data, { jobId: randomUUID() }), queue.getWaitingCount()])
  const startsAt = new Date(Date.now() + (waiting / PER_SECOND) * 1000)
  return reply
    .code(202)
    .headers({
      'cache-control': 'no-store',
      location: `/queues/${name}/jobs/${job.id}`,
      'ratelimit-policy': `"${name}-admission";q=${capacity}, "${name}-egress";q=${PER_SECOND};w=1`,
      ratelimit: `"${name}-admission";r=${Math.max(0, capacity - waiting)}`,
    })
    .send({ id: job.id, state: 'waiting', position: waiting, startsAt })
}

const idAlone: Handler = (queue) => async (request, reply) => {
  const { id } = await queue.add('job', (request.body as { data: unknown }).data)
  return reply.code(202).header('location', `/queues/${queue.name}/jobs/${id}`).send({ id, state: 'waiting' })
}

/** A typical route without Sluice. */
const addingRoute = (handler: Handler): Open => {
  return async ({ redis, queue: name, capacity }) => {
    const queue = new Queue(name, { connection: connectionTo(redis) })
    await queue.waitUntilReady()
    return onFastify(
      (app) => app.post('/queues/:queue/jobs', { schema: { body: BODY } }, handler(queue, capacity)),
      () => queue.close(),
    )
  }
}

const HEADER = 'x-api-key'
const ANSWER = { ok: true }
const MINUTE_MS = 60_000

/** A window of a minute per key, as in the two other libraries. */
function limited(redis: Redis, perMinute: number): Middleware {
  const rate = { limit: perMinute, period: MINUTE_MS }
  const limit = createLimiter(redis, { name: 'route', algorithm: 'fixed-window', rate, timeoutMs: 5000 })
  return rateLimit({ limit, key: byApiKey({ header: HEADER }) })
}

const keyGenerator = ({ headers }: { headers: NodeJS.Dict<string | string[]> }) => String(headers[HEADER])

const limitedFastify = (register: (app: FastifyInstance, redis: Redis, perMinute: number) => unknown): Open => {
  return ({ redis, perMinute }) => {
    const client = new Redis(connectionTo(redis))
    return onFastify(
      async (app) => {
        await register(app, client, perMinute)
        app.get('/', async () => ANSWER)
      },
      async () => client.disconnect(),
    )
  }
}

const limitedExpress = (middleware: (redis: Redis, perMinute: number) => express.RequestHandler): Open => {
  return async ({ redis, perMinute }) => {
    const client = new Redis(connectionTo(redis))
    const app = express()
    app.use(middleware(client, perMinute))
    app.get('/', (_request, response) => {
      response.json(ANSWER)
    })
    const server = app.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const close = async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
      client.disconnect()
    }
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close }
  }
}

/**
 * Servers that admit jobs: the gateway; the same handler on BullMQ's `queue.add` with the same answer; and one that
 * answers with the id only. Then those that limit a route of their framework, each with the same limit.
 */
const SERVERS = {
  gateway: async ({ redis, queue, capacity }) => {
    const shape = { capacity, rate: `${PER_SECOND}/s` } as const
    const gateway = createGateway({ connection: { ...redis }, queues: { [queue]: { shape, schema: DATA } } })
    await gateway.waitUntilReady()
    return onFastify(
      (app) => app.register(fastifyMiddleware(gateway)),
      () => gateway.close(),
    )
  },
  'queue.add': addingRoute(sameAnswer),
  'queue.add, the id alone': addingRoute(idAlone),
  'rateLimit on Fastify': limitedFastify((app, redis, perMinute) =>
    app.register(fastifyMiddleware(limited(redis, perMinute))),
  ),
  '@fastify/rate-limit': limitedFastify((app, redis, perMinute) =>
    app.register(fastifyRateLimit, { redis, max: perMinute, timeWindow: MINUTE_MS, keyGenerator }),
  ),
  'rateLimit on Express': limitedExpress(
    (redis, perMinute) => connectMiddleware(limited(redis, perMinute)) as express.RequestHandler,
  ),
  'express-rate-limit': limitedExpress((redis, perMinute) =>
    expressRateLimit({
      ...{ limit: perMinute, windowMs: MINUTE_MS, standardHeaders: 'draft-8', legacyHeaders: false, keyGenerator },
      store: new RedisStore({ sendCommand: (command, ...args) => redis.call(command, ...args) as Promise<never> }),
    }),
  ),
} satisfies Record<string, Open>
export type Server = keyof typeof SERVERS

let opened: OpenServer | undefined

/** Of a process with one server. */
export const methods = {
  /** @returns the URL to call */
  async open({ server, queue = '', capacity = 0, perMinute = 0, redis }: ServerSpec): Promise<string> {
    opened = await SERVERS[server]({ queue, capacity, perMinute, redis })
    return opened.url
  },
  /** CPU that the process has used, µs. */
  async cpuUs(): Promise<number> {
    const { user, system } = process.cpuUsage()
    return user + system
  },
  /** Heap in use after a full collection, bytes. */
  async heapBytes(): Promise<number> {
    global.gc?.()
    const { heapUsed, external } = process.memoryUsage()
    return heapUsed + external
  },
  async close(): Promise<void> {
    await opened?.close()
  },
}
