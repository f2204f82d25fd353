import type { Cluster } from 'ioredis'
import { withinMs } from '../redis/deadlines.ts'

/** Redis's report about itself. Fields that its user may not read, or the server does not report, are absent. */
export interface RedisState {
  /** Whether a master or a replica answers; `unknown` if the user is not allowed to run INFO. */
  readonly role: 'master' | 'replica' | 'unknown'
  /**
   * For a replica: how long ago it received data from its master, ms in whole seconds; its data is at most that old.
   * undefined if it never did.
   */
  readonly lagMs?: number
  /** `Redis 7.4.1`, `Valkey 8.0.1`. */
  readonly version?: string
  /** On a cluster, of its fullest master. */
  readonly memory?: RedisMemory
  /** Replicas of a master. */
  readonly replicas?: readonly RedisReplica[]
  /**
   * Why a master refuses writes now: its memory is full, its disk is, or too few replicas are in sync
   * (`min-replicas-to-write`). Absent if it accepts them.
   */
  readonly refusesWrites?: 'memory' | 'disk' | 'replicas'
}

export interface RedisMemory {
  /** The part that counts towards the maximum: without buffers for replicas and for the append-only file. */
  readonly usedBytes: number
  /** `maxmemory`; undefined if there is none. */
  readonly maxBytes?: number
  /** `maxmemory-policy`. */
  readonly policy?: string
}

/** A replica, as its master sees it. */
export interface RedisReplica {
  /** `host:port`. */
  readonly address: string
  /** `online` if it is in sync. */
  readonly state: string
  /** How long ago its last sign of life came, ms in whole seconds. */
  readonly lagMs: number
}

/** The sections of INFO that {@link readRedisState} reads. */
export const REDIS_SECTIONS = ['server', 'memory', 'persistence', 'replication'] as const

/** From this part of the maximum on, memory needs a look. */
export const HIGH_MEMORY = 0.9

/** Fields of INFO by name. */
export type InfoFields = ReadonlyMap<string, string>

export function infoFields(info: string): InfoFields {
  const lines = info.split(/\r?\n/).filter((line) => line.includes(':') && !line.startsWith('#'))
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]))
}

/** @param info some or all of {@link REDIS_SECTIONS} */
export function readRedisState(info: InfoFields): RedisState {
  const version = versionOf(info)
  const memory = memoryOf(info)
  const common = { ...(version === undefined ? {} : { version }), ...(memory === undefined ? {} : { memory }) }
  if (info.get('role') === 'slave') return { role: 'replica', ...lagOf(info), ...common }
  const refusal = refusalOf(info, memory)
  const refused = refusal === undefined ? {} : { refusesWrites: refusal }
  return { role: 'master', ...common, replicas: replicasOf(info), ...refused }
}

function versionOf(info: InfoFields): string | undefined {
  const valkey = info.get('valkey_version')
  if (valkey !== undefined) return `Valkey ${valkey}`
  const redis = info.get('redis_version')
  return redis && `Redis ${redis}`
}

function memoryOf(info: InfoFields): RedisMemory | undefined {
  const used = info.get('used_memory')
  if (used === undefined) return undefined
  const usedBytes = Math.max(0, Number(used) - Number(info.get('mem_not_counted_for_evict') ?? 0))
  const maxBytes = Number(info.get('maxmemory') ?? 0)
  const policy = info.get('maxmemory_policy')
  return { usedBytes, ...(maxBytes > 0 ? { maxBytes } : {}), ...(policy === undefined ? {} : { policy }) }
}

function lagOf(info: InfoFields): { lagMs?: number } {
  const isUp = info.get('master_link_status') === 'up'
  const seconds = Number(info.get(isUp ? 'master_last_io_seconds_ago' : 'master_link_down_since_seconds') ?? -1)
  return seconds < 0 ? {} : { lagMs: seconds * 1000 }
}

/** `slave0:ip=127.0.0.1,port=7000,state=online,offset=14,lag=0` */
function replicasOf(info: InfoFields): RedisReplica[] {
  return [...info].flatMap(([field, value]) => {
    if (!/^slave\d+$/.test(field)) return []
    const parts = new Map(value.split(',').map((part) => part.split('=') as [string, string]))
    const address = `${parts.get('ip')}:${parts.get('port')}`
    return [{ address, state: String(parts.get('state')), lagMs: Number(parts.get('lag')) * 1000 }]
  })
}

function refusalOf(info: InfoFields, memory: RedisMemory | undefined): RedisState['refusesWrites'] {
  if (memory?.policy === 'noeviction' && shareOf(memory) >= 1) return 'memory'
  if (info.get('aof_enabled') === '1' && info.get('aof_last_write_status') === 'err') return 'disk'
  // It is reported only if replicas are required.
  return info.get('min_slaves_good_slaves') === '0' ? 'replicas' : undefined
}

/** The used part of the maximum; 0 if there is none. */
export function shareOf({ usedBytes, maxBytes }: RedisMemory): number {
  return maxBytes === undefined ? 0 : usedBytes / maxBytes
}

/** For a node that does not answer, ms. */
const NODE_WAIT_MS = 2000

/** The state of a cluster: the worst of its masters. Masters that do not answer, or may not be asked, are left out. */
export async function clusterState(cluster: Cluster): Promise<RedisState> {
  const role = cluster.options.scaleReads === 'master' ? 'master' : 'unknown'
  const asked = cluster.nodes('master').map((node) => {
    const info = node.call('info', ...REDIS_SECTIONS) as Promise<string>
    return withinMs(
      NODE_WAIT_MS,
      info.then((text) => readRedisState(infoFields(text))).catch(() => undefined),
    )
  })
  const masters = (await Promise.all(asked)).filter((state) => state !== undefined)
  const [first] = masters
  if (!first) return { role }
  const fullest = masters.reduce((one, other) => (fullnessOf(other) > fullnessOf(one) ? other : one))
  const refusing = masters.find(({ refusesWrites }) => refusesWrites !== undefined)
  return {
    ...fullest,
    role,
    replicas: masters.flatMap(({ replicas = [] }) => replicas),
    ...(refusing?.refusesWrites === undefined ? {} : { refusesWrites: refusing.refusesWrites }),
  }
}

function fullnessOf({ memory }: RedisState): number {
  return memory ? shareOf(memory) : -1
}
