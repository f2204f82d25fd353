import type { RedisMemory } from 'sluice/inspect'
import { HIGH_MEMORY, readRedisState, shareOf } from 'sluice/internal'
import { type Examined, type Finding, Findings, permitted, serverInfo } from '../check.ts'

/** Redis must never evict a key: a queue that lost some of its keys is worse than no queue. */
export async function eviction({ client }: Examined): Promise<Finding[]> {
  const findings = new Findings('eviction')
  return permitted(findings, '+info', async () => {
    const { memory } = readRedisState(await serverInfo(client, 'memory'))
    if (memory?.policy === undefined)
      return [findings.skipped('the server does not report its maxmemory-policy', 'ask its provider')]
    if (memory.policy !== 'noeviction') {
      const remedy = 'CONFIG SET maxmemory-policy noeviction, and the same in redis.conf'
      return [
        findings.error(
          `maxmemory-policy is ${memory.policy}: Redis may drop keys of queues when memory is short`,
          remedy,
        ),
      ]
    }
    return [memoryFinding(findings, memory)]
  })
}

function memoryFinding(findings: Findings, memory: RedisMemory): Finding {
  const share = shareOf(memory)
  const remedy = 'raise maxmemory, lower the capacity of queues, or keep fewer finished jobs (removeOnComplete)'
  const percent = Math.floor(share * 100)
  if (share >= 1) return findings.error(`${percent}% of maxmemory is used: writes are refused, and so are adds`, remedy)
  if (share < HIGH_MEMORY) return findings.ok('maxmemory-policy is noeviction')
  return findings.warning(`${percent}% of maxmemory is used: adds are refused when it is full`, remedy)
}
