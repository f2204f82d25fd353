import type { Examined } from '../check.ts'
import { type Finding, Findings } from '../finding.ts'
import { permitted } from '../permission.ts'
import { serverInfo } from '../server-info.ts'

const HIGH_MEMORY = 0.9

/** Redis must never evict a key: a queue that lost some of its keys is worse than no queue. */
export async function eviction({ client }: Examined): Promise<Finding[]> {
  const findings = new Findings('eviction')
  return permitted(findings, '+info', async () => {
    const info = await serverInfo(client, 'memory')
    const policy = info.get('maxmemory_policy')
    if (policy === undefined)
      return [findings.skipped('the server does not report its maxmemory-policy', 'ask its provider')]
    const max = Number(info.get('maxmemory') ?? 0)
    const used = Number(info.get('used_memory') ?? 0)
    if (policy !== 'noeviction') {
      const remedy = 'CONFIG SET maxmemory-policy noeviction, and the same in redis.conf'
      return [
        findings.error(`maxmemory-policy is ${policy}: Redis may drop keys of queues when memory is short`, remedy),
      ]
    }
    if (max > 0 && used > max * HIGH_MEMORY) {
      const percent = Math.floor((used / max) * 100)
      const remedy = 'raise maxmemory, lower the capacity of queues, or keep fewer finished jobs (removeOnComplete)'
      return [findings.warning(`${percent} % of maxmemory is used: adds are refused when it is full`, remedy)]
    }
    return [findings.ok('maxmemory-policy is noeviction')]
  })
}
