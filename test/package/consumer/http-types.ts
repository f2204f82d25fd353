// Compiled, never run: what a project with the packages of sluice/http sees of its types.
import { fastify } from 'fastify'
import type { ShapedQueue } from 'sluice'
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
} from 'sluice/http'
import { createLimiter } from 'sluice/limits'

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
