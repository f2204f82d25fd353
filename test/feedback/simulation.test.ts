import { someOf } from '../support/cases.ts'
import { test, useConcurrentTests } from '../support/concurrent.ts'
import { useRedis } from '../support/redis.ts'
import { BucketServer, type LimitedServer, WindowServer } from './support/limited-server.ts'
import { type Phase, simulate } from './support/simulation.ts'

// Virtual time: the scripts of lua/ and the reports of workers are the real ones, only their clocks are held.
// test/slow/feedback.test.ts takes every server through all of it.
const redis = useRedis(import.meta.url)
useConcurrentTests()

const at = (limit: number, seconds: number): Phase => ({ limit, seconds })

const SERVERS: readonly [string, LimitedServer, readonly Phase[]][] = [
  ['a bucket that says when, in seconds', new BucketServer(100, 10, 'seconds'), [at(100, 360), at(1000, 180)]],
  ['a bucket that says nothing of when', new BucketServer(100, 10, 'nothing'), [at(100, 120), at(60, 120)]],
  ['a bucket that says exactly when', new BucketServer(60, 10, 'exactly'), [at(60, 120)]],
  ['a window of 10 s', new WindowServer(100, 10_000, 'seconds'), [at(100, 120)]],
  ['nine tenths of the configured rate', new BucketServer(180, 10, 'seconds'), [at(180, 120)]],
  ['a tenth of it', new BucketServer(20, 10, 'seconds'), [at(20, 120)]],
  // One step past the wall is two thirds of the limit.
  ['so little that a step goes far past it', new BucketServer(3, 2, 'exactly'), [at(3, 360)]],
]

test.each(someOf(SERVERS))('%s: the hidden limit is found and kept to', { timeout: 600_000 }, (name, server, phases) =>
  simulate(redis, name, server, phases),
)
