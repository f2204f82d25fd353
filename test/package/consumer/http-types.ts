// Compiled, never run: what a project with all packages sees of their types.
import { fastify } from 'fastify'
import type { ShapedQueue } from 'sluice'
import { createLimiter } from 'sluice/limits'
import { type EgressAnswer, egressFetch, HttpResponseError } from 'sluice-fetch'
import {
  byAddress,
  type ConnectMiddleware,
  connectMiddleware,
  createGateway,
  fastifyMiddleware,
  fetchMiddleware,
  fleetShedder,
  type GatewayOptions,
  type HttpRequest,
  inOrder,
  type Middleware,
  rateLimit,
} from 'sluice-gateway'
import {
  createGatewayClient,
  createPoliteFetch,
  type EnqueuedJob,
  type FetchWait,
  GatewayRefusedError,
  LimitExceededError,
} from 'sluice-gateway/client'

const options: GatewayOptions = {
  connection: { host: 'localhost' },
  queues: { mails: { shape: { rate: '50/s', capacity: 10 }, schema: { type: 'object' }, allow: ['delay'] } },
}
// @ts-expect-error a queue without a schema
createGateway({ ...options, queues: { mails: {} } })

export function middlewareOf(redis: import('ioredis').Redis, queue: ShapedQueue): Middleware {
  const limit = createLimiter(redis, { name: 'api', rate: '10/s', burst: 10 })
  const cost = ({ method }: HttpRequest) => (method === 'POST' ? 5 : 1)
  // @ts-expect-error nobody's limit
  rateLimit({ limit })
  const shedding = fleetShedder({ name: 'mails', queue })
  return inOrder([rateLimit({ limit, key: byAddress({ trustProxy: ['loopback'] }), cost }), shedding])
}

export async function serve(middleware: Middleware): Promise<string> {
  const app = fastify()
  await app.register(fastifyMiddleware(createGateway(options)))
  await app.register(fastifyMiddleware(middleware))
  return app.listen({ port: 0 })
}

export const before = (middleware: Middleware): ConnectMiddleware => connectMiddleware(middleware)
export const around = (middleware: Middleware): ((request: Request) => Promise<Response>) =>
  fetchMiddleware(middleware, () => new Response('found'))

export const statusOf = (error: unknown): number => (error instanceof HttpResponseError ? error.statusCode : 0)

export const polite: typeof fetch = createPoliteFetch({ onWait: ({ waitMs }: FetchWait) => waitMs.toFixed() })
const gateway = createGatewayClient({ url: 'https://jobs.example', token: 'a', fetch: polite })
export const enqueued: Promise<EnqueuedJob> = gateway.enqueue('mails', { to: 'a@example.com' }, { idempotencyKey: '1' })
export const refusedBy = (error: unknown) => (error instanceof GatewayRefusedError ? error.violatedPolicies : [])
// @ts-expect-error a gateway without its URL
createGatewayClient({ token: 'a' })
export const late = (error: unknown): number => (error instanceof LimitExceededError ? error.retryAfterMs : 0)

const call = egressFetch({ targets: { crm: { baseUrl: 'https://crm.example', headers: { 'x-key': { env: 'KEY' } } } } })
export const answer: Promise<EgressAnswer> = call({ target: 'crm' })
