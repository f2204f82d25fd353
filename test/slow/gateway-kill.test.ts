import { test } from 'vitest'
import { killUnderLoad } from '../../packages/gateway/test/support/kill-under-load.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()

/** How often the gateway is killed; GATEWAY_KILLS. */
const KILLS = Number(process.env.GATEWAY_KILLS ?? 200)

test(
  `a gateway killed between script and answer, ${KILLS} times under load: every accepted job is there exactly once`,
  () => killUnderLoad(redis, processes, KILLS),
  60_000 + KILLS * 10_000,
)
