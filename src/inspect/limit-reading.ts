import type { LimitWire } from '../limits/definition.ts'
import { controlKey, DEFAULT_LIMIT_PREFIX, hashTag, switchKey } from '../limits/limit-keys.ts'
import { costUnder, type QueueLimit } from '../limits/queue-limits.ts'
import { type Answer, Batch, type BatchClient, tolerant } from './batch.ts'
import type { JobCost } from './job-cost.ts'
import { type LimitPlan, type LimitState, limitPlan } from './limit-plan.ts'

/** As `lua/limits/queue-limits.lua` stores it. */
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
  /** Units reserved for other jobs: they have to conform as well. */
  readonly kept: number
  costOf(job: JobCost): number
}

/** What is known of all limits of a queue. */
export interface QueueLimits {
  readonly holding: readonly HoldingLimit[]
  /** The name of a limit whose places are all taken by running jobs: when one becomes free is unknown. */
  readonly taken: string | undefined
}

const BYTES = 8
/**
 * A log is as large as its limit. Its oldest charges leave it first, and each job that is looked at waits for one or
 * some of them.
 */
const MOST_CHARGES = 256

/**
 * Asks for the enforced limits of a queue: the state of the time-based ones, and whether the places of the others are
 * taken.
 * @param limits the field `limits` of its shape
 */
export function askForLimits(
  batch: Batch,
  base: string,
  limits: string | undefined,
  nowUs: number,
): Answer<QueueLimits> {
  const stored = JSON.parse(limits ?? '[]') as StoredLimit[]
  const isPlaces = ({ algorithm }: StoredLimit) => algorithm === 'concurrency'
  const timed = stored.filter((limit) => !isPlaces(limit)).map((limit) => askForLimit(batch, base, limit, nowUs))
  const places = stored.filter(isPlaces).map((limit) => askForPlaces(batch, base, limit, nowUs))
  return () => ({
    holding: timed.flatMap((limit) => limit() ?? []),
    taken: places.map((limit) => limit()).find((name) => name !== undefined),
  })
}

/** The same, in a round trip of its own. */
export async function readLimits(
  redis: BatchClient,
  base: string,
  limits: string | undefined,
  nowUs: number,
): Promise<QueueLimits> {
  const batch = new Batch(redis)
  const asked = askForLimits(batch, base, limits, nowUs)
  await batch.run()
  return asked()
}

/**
 * Asks for the enforced limits of one group, '' for jobs without one.
 * @param limits those per group, as stored
 */
export function askForGroupLimits(
  batch: Batch,
  base: string,
  limits: string,
  { group, nowUs }: { readonly group: string; readonly nowUs: number },
): Answer<readonly HoldingLimit[]> {
  const asked = (JSON.parse(limits) as StoredLimit[]).map((limit) => {
    const code = limit.state.slice(0, limit.state.lastIndexOf(':') + 1)
    const key = `${base}meta:group:limit:${limit.name}${code}${group}`
    return { limit, state: readState(batch, key, limit, nowUs) }
  })
  return () =>
    asked.flatMap(({ limit, state }) => (isEnforced(limit) ? [holdingLimit(limit, state(), { nowUs, kept: 0 })] : []))
}

function askForLimit(batch: Batch, base: string, limit: StoredLimit, nowUs: number): Answer<HoldingLimit | undefined> {
  const control = controlOf(limit, base)
  const key = control + limit.state
  const switched = batch.add<string | null>('get', switchKey(control))
  const state = readState(batch, key, limit, nowUs)
  return () => {
    const [mode, , takenAtUs = '0'] = tolerant(switched)?.split(' ') ?? []
    if (!isEnforced(limit, mode)) return undefined
    const { reserve = 0, lend = 0, burst, limit: units = 0 } = limit
    const kept = nowUs - Number(takenAtUs) < lend ? (burst ?? units) * reserve : 0
    return holdingLimit(limit, state(), { nowUs, kept })
  }
}

function holdingLimit(
  limit: StoredLimit,
  state: LimitState,
  { nowUs, kept }: { readonly nowUs: number; readonly kept: number },
): HoldingLimit {
  const { name, rule } = limit
  return {
    ...{ name, kept, plan: limitPlan(limit, state, nowUs) },
    costOf: ({ cost, costs }) => costUnder(rule, cost, costs),
  }
}

/** The name of the limit if all its places are taken; as `schedule.open_limits` of `lua/admission/schedule.lua`. */
function askForPlaces(batch: Batch, base: string, limit: StoredLimit, nowUs: number): Answer<string | undefined> {
  const control = controlOf(limit, base)
  const switched = batch.add<string | null>('get', switchKey(control))
  const taken = batch.add<number>('zcount', control + limit.state, `(${nowUs}`, '+inf')
  return () => {
    const [mode] = tolerant(switched)?.split(' ') ?? []
    if (!isEnforced(limit, mode)) return undefined
    return (tolerant(taken) ?? 0) >= (limit.limit ?? Number.POSITIVE_INFINITY) ? limit.name : undefined
  }
}

/** @param mode of its switch: '-' for the mode of its definition */
function isEnforced(limit: StoredLimit, mode = '-'): boolean {
  return (mode === '-' ? limit.mode : mode) === 'enforce'
}

/** As `queue_limit_control` of `lua/limits/queue-limit-control.lua`. */
function controlOf({ name, shared, prefix }: StoredLimit, base: string): string {
  if (!shared) return `${base}meta:limit:${name}`
  const tag = hashTag(prefix ?? base)
  return controlKey(prefix ?? (tag === undefined ? DEFAULT_LIMIT_PREFIX : `{${tag}}`), name)
}

function readState(batch: Batch, key: string, limit: StoredLimit, nowUs: number): Answer<LimitState> {
  return limit.algorithm === 'sliding-window-log' ? readLog(batch, key, limit, nowUs) : readPacked(batch, key)
}

function readPacked(batch: Batch, key: string): Answer<LimitState> {
  const text = batch.addBuffer('get', key)
  return () => {
    const bytes = tolerant(text) ?? Buffer.alloc(0)
    const packed = Array.from({ length: bytes.length / BYTES }, (_, i) => bytes.readDoubleLE(i * BYTES))
    return { packed, log: [], read: 0, before: 0 }
  }
}

function readLog(batch: Batch, key: string, { window = 0 }: StoredLimit, nowUs: number): Answer<LimitState> {
  const from = nowUs - window
  const before = batch.add<string[]>('zrevrangebyscore', key, from, 0, 'LIMIT', 0, 1)
  const first = batch.add<string[]>('zrangebyscore', key, `(${from}`, '+inf', 'WITHSCORES', 'LIMIT', 0, MOST_CHARGES)
  const last = batch.add<string[]>('zrevrangebyscore', key, '+inf', `(${from}`, 'WITHSCORES', 'LIMIT', 0, 1)
  return () => {
    const log = chargesOf(tolerant(first) ?? [])
    const newest = chargesOf(tolerant(last) ?? []).filter(({ sum }) => sum > (log.at(-1)?.sum ?? 0))
    return { packed: [], log: [...log, ...newest], read: log.length, before: Number(tolerant(before)?.[0] ?? 0) }
  }
}

function chargesOf(flat: readonly string[]): { atUs: number; sum: number }[] {
  return flat.flatMap((sum, i) => (i % 2 === 0 ? [{ atUs: Number(flat[i + 1]), sum: Number(sum) }] : []))
}
