import type { Redis } from 'ioredis'
import { findFreePort } from '../../../workers/services/free-port.ts'
import type { RedisService, StartRedisOptions } from '../../../workers/services/redis.ts'
import { type Link, startLink } from './link.ts'
import { adminOf, startOwnRedis } from './own-redis.ts'

/**
 * A Redis that others reach over links, so that it can be parted from them. The server itself is told the ports of the
 * links, and tells them to others.
 */
export interface LinkedRedis {
  readonly service: RedisService
  /** Connected past the links. */
  readonly admin: Redis
  /** What replicas, Sentinels and clients are given as its address. */
  readonly link: Link
  /** The address of clients that stay with one server while the network is parted. */
  readonly aside: Link
  /** That of the cluster's own messages. */
  readonly bus: Link
}

/** Another process, or another server of the test, may take a port between the check and the bind. */
const MOST_ATTEMPTS = 5

/**
 * @param argsOf the arguments of the server, given the ports of its link and bus, and that which the bus leads to
 */
export async function startLinkedRedis(
  argsOf: (ports: { link: number; bus: number; ownBus: number }) => string[],
  options: StartRedisOptions = {},
): Promise<LinkedRedis> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await startOn(argsOf, options)
    } catch (error) {
      if (attempt === MOST_ATTEMPTS || !String(error).includes('Address already in use')) throw error
    }
  }
}

async function startOn(
  argsOf: Parameters<typeof startLinkedRedis>[0],
  options: StartRedisOptions,
): Promise<LinkedRedis> {
  const port = await findFreePort()
  const ownBus = await findFreePort()
  const [link, aside, bus] = await Promise.all([startLink(port), startLink(port), startLink(ownBus)])
  const args = argsOf({ link: link.port, bus: bus.port, ownBus })
  const service = await startOwnRedis({ ...options, port, args: [...args, ...(options.args ?? [])] })
  return { service, admin: adminOf(service.url), link, aside, bus }
}
