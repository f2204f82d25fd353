import { test } from 'vitest'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { rollingRestarts } from './support/rolling-restarts.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()

// Fault table, row 36; 50 restarts: test/slow/rolling-restarts.test.ts.
test('workers are replaced 3 times under load: every job runs once, and none stalls', () =>
  rollingRestarts(redis, processes, 3))
