import { test } from 'vitest'
import { rollingRestarts } from '../faults/support/rolling-restarts.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()

/** How often a worker is replaced; ROLLING_RESTARTS. */
const RESTARTS = Number(process.env.ROLLING_RESTARTS ?? 50)

test(
  `workers are replaced ${RESTARTS} times under load: every job runs once, and none stalls`,
  () => rollingRestarts(redis, processes, RESTARTS),
  60_000 + RESTARTS * 10_000,
)
