import { test } from 'vitest'
import { BucketServer, type LimitedServer, WindowServer } from '../feedback/support/limited-server.ts'
import { simulate } from '../feedback/support/simulation.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)

const SERVERS: readonly (readonly [string, (limit: number) => LimitedServer])[] = [
  ['a bucket that says when, in seconds', (limit) => new BucketServer(limit, 10, 'seconds')],
  ['a bucket that says exactly when', (limit) => new BucketServer(limit, 10, 'exactly')],
  ['a bucket that says nothing of when', (limit) => new BucketServer(limit, 10, 'nothing')],
  ['a window of 1 s', (limit) => new WindowServer(limit, 1000, 'exactly')],
  ['a window of 10 s', (limit) => new WindowServer(limit, 10_000, 'seconds')],
]
/** A minute to find it, and five to keep to it. */
const seconds = 360

test.each(SERVERS)('%s: its limit is found again after each change', (name, serverOf) =>
  simulate(redis, name, serverOf(100), [
    { limit: 100, seconds },
    { limit: 60, seconds },
    { limit: 1000, seconds: 180 },
  ]),
)

test.each(SERVERS)('%s: little less than the configured rate, and then a tenth', (name, serverOf) =>
  simulate(redis, `${name} far`, serverOf(180), [
    { limit: 180, seconds },
    { limit: 20, seconds },
  ]),
)
