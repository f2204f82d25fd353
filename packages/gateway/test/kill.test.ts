import { test } from 'vitest'
import { useProcesses } from '../../../test/support/processes.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { killUnderLoad } from './support/kill-under-load.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()

// Fault table, row 3; 200 times: test/slow/gateway-kill.test.ts.
test('a gateway killed between script and answer, 10 times under load: every accepted job is there exactly once', async () => {
  await killUnderLoad(redis, processes, 10)
})
