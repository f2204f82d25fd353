// A request whose user waits does not queue: it takes from the same account as the jobs.
import { Redis } from 'ioredis'
import { createLimiter } from 'sluice/limits'
import { account, connection, prefix } from './queue.mjs'

export const redis = new Redis(connection.url)
export const limiter = createLimiter(redis, { ...account, prefix, timeoutMs: 1000 })

/** Whether so many calls may be made at once; if not, `retryAfterMs` says when. */
export const mayCall = (calls) => limiter.take(undefined, { cost: calls })
