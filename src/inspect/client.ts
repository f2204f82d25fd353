import { Redis, type RedisOptions } from 'ioredis'
import { gotText } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import type { ShapedQueueOptions } from '../queue/options.ts'
import type { BatchClient } from './batch.ts'

/** As in BullMQ: an ioredis client, or its options. */
export type InspectorConnection = ShapedQueueOptions['connection']

export interface ReadClient {
  readonly redis: BatchClient
  /** Whether it was created here, and has to be closed here. */
  readonly isOwn: boolean
}

/**
 * Uses the given client, or creates one.
 * @throws InvalidInputError for a client of another library
 */
export function readClient(connection: InspectorConnection): ReadClient {
  if (typeof connection !== 'object' || connection === null) throw unusable(gotText(connection))
  if ('pipeline' in connection && typeof connection.pipeline === 'function') {
    return { redis: connection as unknown as Redis, isOwn: false }
  }
  if (typeof connection.connect === 'function') throw unusable('a client of another library')
  const {
    url,
    skipVersionCheck: _,
    ...options
  } = connection as RedisOptions & { url?: string; skipVersionCheck?: boolean }
  // A read-only user may lack the right to run INFO, which ioredis uses to check that Redis is ready.
  const reading = { enableReadyCheck: false, ...options } as Omit<RedisOptions, 'replyMapping'>
  const redis = url === undefined ? new Redis(reading) : new Redis(url, reading)
  // Each call rejects with its own error.
  redis.on('error', () => {})
  return { redis, isOwn: true }
}

function unusable(came: string): InvalidInputError {
  return new InvalidInputError(`connection must be an ioredis client or its options; got ${came}`)
}
