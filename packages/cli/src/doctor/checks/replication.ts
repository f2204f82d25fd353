import { countText, type InfoFields, readRedisState } from 'sluice/internal'
import { type Examined, type Finding, Findings, permitted, serverInfo } from '../check.ts'

const MAX_LAG_MS = 5000

/** Whether this is the server that takes writes, and the state of its replicas. */
export async function replication({ client }: Examined): Promise<Finding[]> {
  const findings = new Findings('replication')
  return permitted(findings, '+info', async () => {
    const info = await serverInfo(client, 'replication')
    return info.get('role') === 'master' ? masterFindings(findings, info) : [replicaFinding(findings, info)]
  })
}

function replicaFinding(findings: Findings, info: InfoFields): Finding {
  const master = `${info.get('master_host')}:${info.get('master_port')}`
  const remedy = `connect to ${master}; a replica is for --read-url`
  if (info.get('master_link_status') === 'up')
    return findings.error(`this is a replica of ${master}: it refuses jobs`, remedy)
  return findings.error(`this is a replica, and its link to ${master} is down: its data is old`, remedy)
}

function masterFindings(findings: Findings, info: InfoFields): Finding[] {
  const { replicas = [], refusesWrites } = readRedisState(info)
  if (refusesWrites === 'replicas') {
    const remedy = 'start replicas, or look at their network and load: until one is in sync, no job is taken'
    return [findings.error('writes are refused: no replica is in sync, and min-replicas-to-write needs one', remedy)]
  }
  if (replicas.length === 0) return [findings.ok('a master without replicas: if it is lost, so is its data')]
  const found = replicas.flatMap(({ address, state, lagMs }) => {
    if (state !== 'online') {
      return [
        findings.warning(
          `replica ${address} is not in sync yet (${state})`,
          'wait until it is online, or check its log',
        ),
      ]
    }
    if (lagMs <= MAX_LAG_MS) return []
    const remedy = 'check its network and load: a failover would lose what it has not received'
    return [findings.warning(`replica ${address} was last heard from ${lagMs / 1000} s ago`, remedy)]
  })
  // INFO has this field only if min-replicas-to-write and min-replicas-max-lag are set.
  if (!info.has('min_slaves_good_slaves')) {
    const remedy =
      'CONFIG SET min-replicas-to-write 1 min-replicas-max-lag 1 (its default is 10 s), and the same in redis.conf'
    found.push(
      findings.warning(
        'a master that is cut off from its replicas keeps taking jobs, and a failover loses them',
        remedy,
      ),
    )
  }
  return found.length > 0 ? found : [findings.ok(`a master with ${countText(replicas.length, 'replica')} in sync`)]
}
