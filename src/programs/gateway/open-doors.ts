import { once } from 'node:events'
import { Redis } from 'ioredis'
import { byAddress, callerAddress, type Door, type Gateway, inOrder, ModeSwitch } from '../../http/index.ts'
import type { Closers } from '../closers.ts'
import { decidingConnection } from '../connection.ts'
import { createErrorLog, type Logger } from '../log.ts'
import type { GatewayHealth } from './health.ts'
import { identityDoors } from './identity.ts'
import { limitDoors } from './limits.ts'
import type { RequestLog } from './request-log.ts'
import type { GatewaySettings } from './settings.ts'
import { processDoors, queueDoors } from './shedding.ts'

export interface Opening {
  readonly settings: GatewaySettings
  readonly log: Logger
  readonly closers: Closers
  readonly gateway: Gateway
  readonly health: GatewayHealth
  readonly requests: RequestLog
}

/**
 * The doors that a request passes, in this order: authentication, the load of this process, limits, the state of the
 * queue, and the gateway. The cheapest come first.
 * @throws InvalidInputError for invalid limits or shedding options
 */
export async function openDoors({ settings, log, closers, gateway, health, requests }: Opening): Promise<Door> {
  const { config, trustProxy, limitsPrefix: prefix } = settings
  const proxies = trustProxy.length > 0 ? { trustProxy } : {}
  const onError = createErrorLog(log)
  const redis = await openRedis(settings.redisUrl, onError, closers)
  const addressOf = callerAddress(proxies.trustProxy)
  const shedding = {
    key: (request: Parameters<typeof addressOf>[0]) => request.identity?.name ?? addressOf(request),
    modes: new ModeSwitch(redis, { prefix, onError }),
    ...(config.classes && { classes: config.classes }),
  }
  return inOrder([
    ...identityDoors(settings, log, closers),
    requests.door,
    received,
    ...processDoors(config, shedding),
    ...(await limitDoors(config.limits, { redis, prefix }, byAddress(proxies), onError)),
    queueDoors(config, shedding, (name) => ({ name, meter: () => gateway.meter(name) }), onError),
    health.watching(gateway),
  ])
}

/** A connection for limits and modes: a caller waits for the decisions of both. */
async function openRedis(url: string, onError: (error: Error) => void, closers: Closers): Promise<Redis> {
  const redis = new Redis(url, decidingConnection(url))
  redis.on('error', onError)
  closers.push(() => redis.disconnect())
  await once(redis, 'ready')
  return redis
}

/** Reads the whole request before any limit counts it, so that a slow sender takes no place from others. */
const received: Door = {
  async enter(request) {
    if (request.method === 'POST') await request.body()
    return {}
  },
}
