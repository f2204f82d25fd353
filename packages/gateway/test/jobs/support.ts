import type { AddressInfo } from 'node:net'
import express from 'express'
import fastify from 'fastify'
import { afterAll, beforeAll, onTestFinished } from 'vitest'
import { type ShapedProcessor, ShapedQueue, ShapedWorker } from '../../../../src/index.ts'
import type { RedisAddress, TestRedis } from '../../../../test/support/redis.ts'
import { fastifyMiddleware } from '../../src/adapters/fastify.ts'
import { inOrder } from '../../src/adapters/in-order.ts'
import { connectMiddleware } from '../../src/adapters/node.ts'
import { createGateway, type Gateway } from '../../src/jobs/gateway.ts'
import type { GatewayOptions, QueueRule } from '../../src/jobs/options.ts'
import type { Identity, Middleware } from '../../src/middleware.ts'

/** Where the queues of a gateway are. */
export interface Place {
  readonly connection: RedisAddress & { readonly connectionName?: string; readonly retryStrategy?: () => number }
  readonly prefix: string
}

export interface RunningGateway {
  readonly url: string
  readonly gateway: Gateway
  readonly errors: Error[]
}

export type StartOptions = Partial<Omit<GatewayOptions, 'queues'>> & {
  /** Who all callers are. */
  readonly identity?: Identity
  readonly through?: 'fastify' | 'express'
  /** Whether it is served only once Redis was reached. Default true. */
  readonly waits?: boolean
  /** Whether it waits for Redis as long as a busy machine may take, and not only as by default. Default true. */
  readonly patient?: boolean
}

/** The data of jobs in most tests. */
export const MAIL = {
  type: 'object',
  properties: { to: { type: 'string', format: 'email' } },
  required: ['to'],
  additionalProperties: false,
} as const

/** A place in the run's Redis, with the connection settings of the gateway itself. */
export function placeIn(redis: TestRedis): Place {
  const { maxRetriesPerRequest: _, ...connection } = redis.connection
  return { connection, prefix: redis.prefix }
}

const PATIENT = { commandTimeout: 20_000, socketTimeout: 20_000 } as const

/** Takes what closes something once it is not needed any more; the last one is called first. */
type Closing = (close: () => void | PromiseLike<void>) => void

/** Serves a gateway over a real socket until the test ends. */
export async function startGateway(
  place: Place,
  queues: Readonly<Record<string, QueueRule>>,
  { identity, through = 'fastify', waits = true, patient = true, ...options }: StartOptions = {},
  closing: Closing = onTestFinished,
): Promise<RunningGateway> {
  const errors: Error[] = []
  const gateway = createGateway({
    ...place,
    ...(patient && { connection: { ...PATIENT, ...place.connection }, redisTimeoutMs: PATIENT.commandTimeout }),
    queues,
    onError: (error) => errors.push(error),
    ...options,
  })
  closing(() => gateway.close())
  if (waits) await gateway.waitUntilReady()
  const middleware = identity ? inOrder([identifying(identity), gateway]) : gateway
  const url = through === 'fastify' ? await serveFastify(middleware, closing) : await serveExpress(middleware, closing)
  return { url, gateway, errors }
}

/** One gateway for all tests of a file that leave it as it was. */
export function useGateway(place: Place, queues: Readonly<Record<string, QueueRule>>): () => RunningGateway {
  const closers: (() => void | PromiseLike<void>)[] = []
  let running: RunningGateway
  beforeAll(async () => {
    running = await startGateway(place, queues, {}, (close) => closers.unshift(close))
  })
  afterAll(async () => {
    for (const close of closers) await close()
  })
  return () => running
}

function identifying(identity: Identity): Middleware {
  return {
    enter: (request) => {
      request.identity = identity
      return {}
    },
  }
}

async function serveFastify(middleware: Middleware, closing: Closing): Promise<string> {
  const app = fastify()
  await app.register(fastifyMiddleware(middleware))
  app.get('/else', async () => 'from behind the middleware')
  closing(() => app.close())
  return app.listen({ host: '127.0.0.1', port: 0 })
}

async function serveExpress(middleware: Middleware, closing: Closing): Promise<string> {
  const app = express()
  app.use(connectMiddleware(middleware))
  app.get('/else', (_, response) => void response.send('from behind the middleware'))
  const server = app.listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  closing(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** Sends a body; a string or bytes go as they are. */
export function post(url: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  const raw = typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body)
  return fetch(url, {
    method: 'POST',
    body: raw as string,
    headers: { 'content-type': 'application/json', ...headers },
  })
}

/** Status and body of an answer. */
export async function told(
  response: Response | Promise<Response>,
): Promise<{ status: number; [member: string]: unknown }> {
  const { status, text } = await Promise.resolve(response).then(async (one) => ({
    status: one.status,
    text: await one.text(),
  }))
  return { ...(text === '' ? {} : JSON.parse(text)), status }
}

/** Another program's sight of a queue; closed with the test. */
export function queueOf(place: Place, name: string): ShapedQueue {
  const queue = new ShapedQueue(name, { connection: { ...place.connection }, prefix: place.prefix })
  queue.on('error', () => {})
  onTestFinished(() => queue.close())
  return queue
}

/** A worker, closed with the test. */
export function workerOf(
  place: Place,
  name: string,
  // biome-ignore lint/suspicious/noExplicitAny: tests give jobs of any kind
  process: ShapedProcessor<any, any, string>,
): ShapedWorker {
  const connection = { ...place.connection, maxRetriesPerRequest: null }
  const worker = new ShapedWorker(name, process, { connection, prefix: place.prefix, allowUnshaped: true })
  worker.on('error', () => {})
  onTestFinished(() => worker.close())
  return worker
}
