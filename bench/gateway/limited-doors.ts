import fastifyRateLimit from '@fastify/rate-limit'
import express from 'express'
import { rateLimit as expressRateLimit } from 'express-rate-limit'
import { type FastifyInstance, fastify } from 'fastify'
import { Redis } from 'ioredis'
import { RedisStore } from 'rate-limit-redis'
import { byApiKey, connectDoor, type Door, fastifyDoor, rateLimit } from 'sluice/http'
import { createLimiter } from 'sluice/limits'
import { listening, type OpenDoor } from './listening.ts'
import type { DoorSpec, LimitedDoor } from './protocol.ts'

const HEADER = 'x-api-key'
const ANSWER = { ok: true }
const MINUTE_MS = 60_000

type Limit = Pick<DoorSpec, 'perMinute'> & { readonly redis: Redis }
type Open = (limit: Limit) => Promise<OpenDoor>

/** A window of a minute per key, as in the two other libraries. */
function ours({ redis, perMinute }: Limit): Door {
  const rate = { limit: perMinute, period: MINUTE_MS }
  const limit = createLimiter(redis, { name: 'door', algorithm: 'fixed-window', rate, timeoutMs: 5000 })
  return rateLimit({ limit, key: byApiKey({ header: HEADER }) })
}

async function onFastify(register: (app: FastifyInstance) => Promise<unknown>): Promise<OpenDoor> {
  const app = fastify()
  await register(app)
  app.get('/', async () => ANSWER)
  return { url: await app.listen({ host: '127.0.0.1', port: 0 }), close: () => app.close() }
}

function onExpress(middleware: express.RequestHandler): Promise<OpenDoor> {
  const app = express()
  app.use(middleware)
  app.get('/', (_request, response) => {
    response.json(ANSWER)
  })
  return listening(app)
}

const DOORS: Readonly<Record<LimitedDoor, Open>> = {
  'rateLimit on Fastify': (limit) => onFastify(async (app) => app.register(fastifyDoor(ours(limit)))),
  '@fastify/rate-limit': ({ redis, perMinute }) =>
    onFastify(async (app) =>
      app.register(fastifyRateLimit, {
        redis,
        max: perMinute,
        timeWindow: MINUTE_MS,
        keyGenerator: ({ headers }) => String(headers[HEADER]),
      }),
    ),
  'rateLimit on Express': (limit) => onExpress(connectDoor(ours(limit)) as express.RequestHandler),
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

export async function openLimitedDoor({ door, redis, perMinute }: DoorSpec & { door: LimitedDoor }): Promise<OpenDoor> {
  const client = new Redis({ ...redis, maxRetriesPerRequest: null })
  const open = await DOORS[door]({ redis: client, perMinute })
  return {
    url: open.url,
    close: async () => {
      await open.close()
      client.disconnect()
    },
  }
}
