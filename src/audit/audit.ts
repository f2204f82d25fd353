import type { AuditEntry, HistoryEntry } from '../inspect/queue-status.ts'
import type { QueueLimit } from '../limits/queue-limits.ts'
import { type AuditedWindow, Level, TOLERANCE_US, worseOf, worstBucketWindow } from './bucket-window.ts'
import { auditLimit, type Charge, type LimitAudit } from './limit-audit.ts'
import { keptDepartures, stretchesOf } from './stretches.ts'

/** How long after their slots the processors were called, µs. */
export interface Lateness {
  /** Departures with a known lateness. */
  readonly starts: number
  /** Departures before their slots: must be 0. */
  readonly early: number
  readonly p50Us: number
  readonly p99Us: number
  readonly maxUs: number
}

/** How well the groups kept the bounds of their own rates. */
export interface GroupsAudit {
  /** Groups and departures that were checked. */
  readonly groups: number
  readonly departures: number
  /** The group that is furthest above its bound, or least below it. */
  readonly worst: AuditedWindow & { readonly group: string }
  /** Groups that broke their bounds. */
  readonly broken: number
}

/** The result of an audit. */
export interface Audit {
  readonly departures: number
  readonly fromUs: number | undefined
  readonly toUs: number | undefined
  /** Departures that were given back before they started; they are not counted above. */
  readonly givenBack: number
  /** Departures that no rate and no limit counted: in shadow, or off. */
  readonly unpaced: number
  /** Separately checked parts; docs/algorithm.md says where departures are split. */
  readonly stretches: number
  /** The worst window of the rate; undefined if no bucket paced a departure. */
  readonly worst: AuditedWindow | undefined
  readonly limits: readonly LimitAudit[]
  /** Groups with a rate; undefined without departures of such groups. */
  readonly groups: GroupsAudit | undefined
  readonly gaps: readonly Gap[]
  readonly lateness: Lateness | undefined
  /** Whether the bound of the rate, of a limit or of a group was broken, or a job started before its slot. */
  readonly broken: boolean
}

export interface AuditOptions {
  /** Maximum number of departures, the latest ones. Default: all. */
  readonly last?: number
  /** The limits of the shape. */
  readonly limits?: readonly QueueLimit[]
  /** Since when these are in force, µs. Default: always. */
  readonly limitsSinceUs?: number
  /** When the shape may have changed, µs, ascending. */
  readonly changesUs?: readonly number[]
}

/** Checks departures against the rate and the limits. @param entries in the order in which they were granted */
export function audit(entries: readonly AuditEntry[], options: AuditOptions = {}): Audit {
  const all = keptDepartures(entries)
  const kept = options.last === undefined ? all : all.slice(-options.last)
  const paced = stretchesOf(kept, options.changesUs)
  const worst = worseOf(paced.map(worstBucketWindow))
  const limits = (options.limits ?? []).map((limit) => limitOf(kept, limit, options))
  const groups = groupsOf(kept, options.changesUs)
  const lateness = latenessOf(kept)
  const isBroken =
    (worst?.excessUs ?? 0) > TOLERANCE_US || limits.some(({ broken }) => broken) || (groups?.broken ?? 0) > 0
  return {
    departures: kept.length,
    fromUs: kept[0]?.slotUs,
    toUs: kept.at(-1)?.slotUs,
    givenBack: entries.length - all.length,
    unpaced: kept.filter(isUnpaced).length,
    stretches: paced.length,
    worst,
    limits,
    groups,
    gaps: longestGaps(kept),
    lateness,
    broken: isBroken || (lateness?.early ?? 0) > 0,
  }
}

/** A limit with `by` is checked for each value of its keys, a pool for each member; the result is that of the worst one. */
function limitOf(entries: readonly AuditEntry[], limit: QueueLimit, options: AuditOptions): LimitAudit {
  if (!(limit.by || limit.pool)) return auditLimit(limit, chargesOf(entries, limit, options))
  const { name } = limit
  const byValue = groupedBy(entries, ({ groupLimits: its, members }) => {
    if (limit.pool) return members?.[name]
    return its && name in its.taken ? (its.values?.[name] ?? its.id) : undefined
  })
  const found = [...byValue].map(([value, own]) => ({
    ...auditLimit(limit, chargesOf(own, limit, options)),
    keys: keysOf(limit, value),
  }))
  const worst = worseOf(found.map((one) => one.worst))
  return {
    ...(found.find((one) => worst && one.worst === worst) ?? found[0] ?? auditLimit(limit, [])),
    values: found.length,
    departures: found.reduce((sum, one) => sum + one.departures, 0),
    broken: found.some(({ broken }) => broken),
  }
}

/** The keys of a value as departures have it: of several keys, each behind its length in bytes. */
function keysOf({ by, pool }: QueueLimit, value: string): Readonly<Record<string, string>> {
  const names = pool ? ['member'] : [by ?? []].flat()
  if (names.length === 1) return { [names[0] as string]: value }
  const keys: Record<string, string> = {}
  let rest = Buffer.from(value)
  for (const name of names) {
    const colon = rest.indexOf(':')
    const end = colon + 1 + Number(rest.subarray(0, colon))
    keys[name] = rest.subarray(colon + 1, end).toString()
    rest = rest.subarray(end)
  }
  return keys
}

/** Entries without an id are left out. */
function groupedBy(
  entries: readonly AuditEntry[],
  idOf: (entry: AuditEntry) => string | undefined,
): ReadonlyMap<string, AuditEntry[]> {
  const groups = new Map<string, AuditEntry[]>()
  for (const entry of entries) {
    const id = idOf(entry)
    if (id === undefined) continue
    const own = groups.get(id)
    if (own) own.push(entry)
    else groups.set(id, [entry])
  }
  return groups
}

/** A later charge is no departure, but may have begun a window. */
function chargesOf(
  entries: readonly AuditEntry[],
  { name, by }: QueueLimit,
  { limitsSinceUs = 0 }: AuditOptions,
): Charge[] {
  return entries
    .flatMap(({ slotUs, limits, limitsSettled, limitRules, groupLimits: its }): Charge[] => {
      const cost = by ? its?.taken[name] : limits[name]
      if (cost === undefined) return []
      const { refunded = 0, chargedUs = [] } = (by ? its?.settled : limitsSettled)?.[name] ?? {}
      const own = limitRules?.[name]
      const rule = own ? { rule: own } : {}
      const later = chargedUs.map((us): Charge => ({ us, cost: 0, ...rule, isSettled: true }))
      return [{ us: slotUs, cost: Math.max(0, cost - refunded), ...rule }, ...later]
    })
    .filter(({ us }) => us >= limitsSinceUs)
    .sort((one, other) => one.us - other.us)
}

/** Each group is checked by itself, like the rate. */
function groupsOf(entries: readonly AuditEntry[], changesUs: readonly number[] | undefined): GroupsAudit | undefined {
  const byGroup = groupedBy(entries, ({ group }) => group?.id)
  let worst: GroupsAudit['worst'] | undefined
  let broken = 0
  for (const [id, own] of byGroup) {
    const paced = stretchesOf(
      own.map(({ refunded: _, ...one }) => ({ ...one, ...one.group })),
      changesUs,
    )
    const window = worseOf(paced.map(worstBucketWindow))
    if (!window) continue
    if (window.excessUs > TOLERANCE_US) broken += 1
    if (!worst || window.excessUs > worst.excessUs) worst = { ...window, group: id }
  }
  const departures = [...byGroup.values()].reduce((sum, own) => sum + own.length, 0)
  return worst && { groups: byGroup.size, departures, worst, broken }
}

function isUnpaced({ intervalUs, group, limits, groupLimits }: AuditEntry): boolean {
  return intervalUs === undefined && !group && !groupLimits && Object.keys(limits).length === 0
}

function latenessOf(entries: readonly AuditEntry[]): Lateness | undefined {
  const late = entries
    .flatMap(({ startedUs, slotUs }) => (startedUs === undefined ? [] : [startedUs - slotUs]))
    .sort((one, other) => one - other)
  if (late.length === 0) return undefined
  const rank = (part: number) => late[Math.ceil(part * late.length) - 1] as number
  const early = late.filter((us) => us < 0).length
  return { starts: late.length, early, p50Us: rank(0.5), p99Us: rank(0.99), maxUs: late.at(-1) as number }
}

/** The kinds of entries that change the rate, the burst or the limits. */
const RESHAPING: readonly HistoryEntry['kind'][] = ['declared', 'override', 'cleared', 'feedback', 'restored', 'group']

/** When the shape of a queue may have changed, µs, ascending. The end of an override has no entry of its own. */
export function changesUs(history: readonly HistoryEntry[]): number[] {
  const changes = history.filter(({ kind }) => RESHAPING.includes(kind))
  const times = changes.flatMap(({ at, until }) => (until ? [at, until] : [at]))
  return times.map((time) => time.getTime() * 1000).sort((one, other) => one - other)
}

/** Time between two departures in which nothing held the queue: no job waited, or no worker took it. */
export interface Gap {
  readonly fromUs: number
  readonly toUs: number
  /** For how long of it nothing held the queue, µs. */
  readonly openUs: number
  /** The job that departed at its end. */
  readonly jobId: string
}

/** The longest gaps, in descending order. @param entries in the order in which they were granted */
function longestGaps(entries: readonly AuditEntry[], count = 5): Gap[] {
  const gaps: Gap[] = []
  let level: Level | undefined
  let before: AuditEntry | undefined
  for (const entry of entries) {
    const { slotUs, cost, intervalUs, burst, jobId } = entry
    const paced = intervalUs !== undefined && burst !== undefined
    const same = before?.intervalUs === intervalUs && before?.burst === burst
    if (before && slotUs > before.slotUs) {
      const held = paced && same && level ? heldUs(level, cost, intervalUs, burst) : 0
      const openUs = Math.min(slotUs - before.slotUs - held, openBetween(before, entry))
      if (openUs > 1) gaps.push({ fromUs: before.slotUs, toUs: slotUs, openUs, jobId })
    }
    level = paced ? (same && level ? level : new Level()).after({ slotUs, cost, intervalUs, burst }) : undefined
    before = entry
  }
  return gaps.sort((one, other) => other.openUs - one.openUs).slice(0, count)
}

/** How long after the last slot the bucket holds a job of that cost. */
function heldUs({ ticks }: Level, cost: number, intervalUs: number, burst: number): number {
  return Math.max(0, ticks / 1024 - (burst - Math.min(cost, burst)) * intervalUs)
}

/**
 * For how long nothing held the queue between two grants. What held it is noted for a job of the mean cost, of which the bucket
 * knows more. A counter that fell was lost with the state of Redis.
 */
function openBetween(before: AuditEntry, entry: AuditEntry): number {
  const held = entry.heldUs - before.heldUs
  return held < 0 ? 0 : entry.grantedUs - before.grantedUs - held
}
