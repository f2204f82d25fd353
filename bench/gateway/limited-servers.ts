import fastifyRateLimit from '@fastify/rate-limit'
import express from 'express'
import { rateLimit as expressRateLimit } from 'express-rate-limit'
import { type FastifyInstance, fastify } from 'fastify'
import { Redis } from 'ioredis'
import { RedisStore } from 'rate-limit-redis'
import { byApiKey, connectMiddleware, fastifyMiddleware, type Middleware, rateLimit } from 'sluice/http'
import { createLimiter } from 'sluice/limits'
import { listening, type OpenServer } from './listening.ts'
import type { LimitedServer, ServerSpec } from './protocol.ts'

const HEADER = 'x-api-key'
const ANSWER = { ok: true }
const MINUTE_MS = 60_000

type Limit = Pick<ServerSpec, 'perMinute'> & { readonly redis: Redis }
type Open = (limit: Limit) => Promise<OpenServer>

/** A window of a minute per key, as in the two other libraries. */
function ours({ redis, perMinute }: Limit): Middleware {
  const rate = { limit: perMinute, period: MINUTE_MS }
  const limit = createLimiter(redis, { name: 'route', algorithm: 'fixed-window', rate, timeoutMs: 5000 })
  return rateLimit({ limit, key: byApiKey({ header: HEADER }) })
}

async function onFastify(register: (app: FastifyInstance) => Promise<unknown>): Promise<OpenServer> {
  const app = fastify()
  await register(app)
  app.get('/', async () => ANSWER)
  return { url: await app.listen({ host: '127.0.0.1', port: 0 }), close: () => app.close() }
}

function onExpress(middleware: express.RequestHandler): Promise<OpenServer> {
  const app = express()
  app.use(middleware)
  app.get('/', (_request, response) => {
    response.json(ANSWER)
  })
  return listening(app)
}

const SERVERS: Readonly<Record<LimitedServer, Open>> = {
  'rateLimit on Fastify': (limit) => onFastify(async (app) => app.register(fastifyMiddleware(ours(limit)))),
  '@fastify/rate-limit': ({ redis, perMinute }) =>
    onFastify(async (app) =>
      app.register(fastifyRateLimit, {
        redis,
        max: perMinute,
        timeWindow: MINUTE_MS,
        keyGenerator: ({ headers }) => String(headers[HEADER]),
      }),
    ),
  'rateLimit on Express': (limit) => onExpress(connectMiddleware(ours(limit)) as express.RequestHandler),
  'express-rate-limit': ({ redis, perMinute }) =>
    onExpress(
      expressRateLimit({
        limit: perMinute,
        windowMs: MINUTE_MS,
        standardHeaders: 'draft-8',
        legacyHeaders: false,
        keyGenerator: ({ headers }) => String(headers[HEADER]),
        store: new RedisStore({ sendCommand: (command, ...args) => redis.call(command, ...args) as Promise<never> }),
      }),
    ),
}

export async function openLimitedServer({
  server,
  redis,
  perMinute,
}: ServerSpec & { server: LimitedServer }): Promise<OpenServer> {
  const client = new Redis({ ...redis, maxRetriesPerRequest: null })
  const open = await SERVERS[server]({ redis: client, perMinute })
  return {
    url: open.url,
    close: async () => {
      await open.close()
      client.disconnect()
    },
  }
}
