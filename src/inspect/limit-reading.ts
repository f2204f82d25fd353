import type { LimitWire } from '../limits/definition.ts'
import { controlKey, DEFAULT_LIMIT_PREFIX, hashTag, switchKey } from '../limits/limit-keys.ts'
import { costUnder, type QueueLimit } from '../limits/queue-limits.ts'
import { type Answer, Batch, type BatchClient, tolerant } from './batch.ts'
import type { JobCost } from './job-cost.ts'
import { type LimitPlan, type LimitState, limitPlan } from './limit-plan.ts'

/** As `lua/lib/queue-limits.lua` has it. */
interface StoredLimit extends LimitWire {
  readonly name: string
  readonly state: string
  readonly shared?: boolean
  readonly prefix?: string
  readonly rule: QueueLimit
}

/** A limit that holds the jobs of a queue, and what may leave under it from now on. */
export interface HoldingLimit {
  readonly name: string
  readonly plan: LimitPlan
  /** Units that are kept for others: they have to conform as well. */
  readonly kept: number
  costOf(job: JobCost): number
}

const BYTES = 8

/**
 * Reads the limits of a queue that pass so many jobs in a time and are enforced.
 * @param limits the field `limits` of its shape
 */
export async function readLimits(
  redis: BatchClient,
  base: string,
  limits: string | undefined,
  nowUs: number,
): Promise<HoldingLimit[]> {
  const stored = JSON.parse(limits ?? '[]') as StoredLimit[]
  const timed = stored.filter(({ algorithm }) => algorithm !== 'concurrency')
  const found = await Promise.all(timed.map((limit) => readLimit(redis, base, limit, nowUs)))
  return found.filter((one) => one !== undefined)
}

/** The keys of one limit lie in one slot, those of several perhaps not. */
async function readLimit(
  redis: BatchClient,
  base: string,
  limit: StoredLimit,
  nowUs: number,
): Promise<HoldingLimit | undefined> {
  const control = controlOf(limit, base)
  const key = control + limit.state
  const batch = new Batch(redis)
  const switched = batch.add<string | null>('get', switchKey(control))
  const state = limit.algorithm === 'sliding-window-log' ? readLog(batch, key, limit, nowUs) : readPacked(batch, key)
  await batch.run()
  const [mode = '-', , takenAtUs = '0'] = tolerant(switched)?.split(' ') ?? []
  const plan = limitPlan(limit, state(), nowUs)
  if ((mode === '-' ? limit.mode : mode) !== 'enforce') return undefined
  const { reserve = 0, lend = 0, burst, limit: units = 0, name, rule } = limit
  const kept = nowUs - Number(takenAtUs) < lend ? (burst ?? units) * reserve : 0
  return { name, plan, kept, costOf: ({ cost, costs }) => costUnder(rule, cost, costs) }
}

/** As `queue_limit_control` of `lua/lib/limit-place.lua`. */
function controlOf({ name, shared, prefix }: StoredLimit, base: string): string {
  if (!shared) return `${base}meta:limit:${name}`
  const tag = hashTag(prefix ?? base)
  return controlKey(prefix ?? (tag === undefined ? DEFAULT_LIMIT_PREFIX : `{${tag}}`), name)
}

function readPacked(batch: Batch, key: string): Answer<LimitState> {
  const text = batch.addBuffer('get', key)
  return () => {
    const bytes = tolerant(text) ?? Buffer.alloc(0)
    const packed = Array.from({ length: bytes.length / BYTES }, (_, i) => bytes.readDoubleLE(i * BYTES))
    return { packed, log: [], before: 0 }
  }
}

function readLog(batch: Batch, key: string, { window = 0 }: StoredLimit, nowUs: number): Answer<LimitState> {
  const before = batch.add<string[]>('zrevrangebyscore', key, nowUs - window, 0, 'LIMIT', 0, 1)
  const log = batch.add<string[]>('zrangebyscore', key, `(${nowUs - window}`, '+inf', 'WITHSCORES')
  return () => {
    const flat = tolerant(log) ?? []
    const charges = flat.flatMap((sum, i) => (i % 2 === 0 ? [{ atUs: Number(flat[i + 1]), sum: Number(sum) }] : []))
    return { packed: [], log: charges, before: Number(tolerant(before)?.[0] ?? 0) }
  }
}
