import type { AuditEntry, SettledLimit } from '../inspect/queue-status.ts'
import { type QueueLimit, ruleOfTier } from '../limits/queue-limits.ts'
import { encodeRate } from '../limits/schedule.ts'
import { type AuditedWindow, TOLERANCE_US, worseOf, worstBucketWindow } from './bucket-window.ts'
import { type Gap, longestGaps } from './gaps.ts'
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
  /** Departures that no bucket paced: in shadow, off, or without a rate. */
  readonly unpaced: number
  /** Separately checked parts; docs/audit.md says where departures are split. */
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
  /** By limit, the values with settings of their own: they are not checked. Default: none. */
  readonly changedValues?: ReadonlyMap<string, ReadonlySet<string>>
  /** When the current limits began, µs. Default: always. */
  readonly limitsSinceUs?: number
  /** When the shape may have changed, µs, ascending. */
  readonly changesUs?: readonly number[]
}

/** Checks departures against the rate and the limits. @param entries in the order in which they were granted */
export function audit(entries: readonly AuditEntry[], options: AuditOptions = {}): Audit {
  const all = keptDepartures(entries)
  const kept = options.last === undefined ? all : all.slice(-options.last)
  const { paced, unpaced } = stretchesOf(kept, options.changesUs)
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
    unpaced,
    stretches: paced.length,
    worst,
    limits,
    groups,
    gaps: longestGaps(kept),
    lateness,
    broken: isBroken || (lateness?.early ?? 0) > 0,
  }
}

/**
 * A limit with `by` is checked for each group, or value of its keys, a pool for each member; the result is that of the
 * worst one.
 */
function limitOf(entries: readonly AuditEntry[], limit: QueueLimit, options: AuditOptions): LimitAudit {
  const { name } = limit
  if (!(limit.by || limit.pool))
    return auditLimit(
      limit,
      chargesOf(entries, ({ limits, limitsSettled }) => [limits[name], limitsSettled?.[name]], options),
    )
  const byValue = groupedBy(entries, ({ groupLimits: its, members }) => {
    if (limit.pool) return members?.[name]
    return its && name in its.taken ? (its.values?.[name] ?? its.id) : undefined
  })
  const changed = options.changedValues?.get(name)
  const checked = [...byValue].filter(([value]) => !changed?.has(value))
  const widest = widestOf(limit)
  const found = checked.map(([value, own]) => {
    const charges = chargesOf(
      own,
      ({ groupLimits: its, limits, limitsSettled }) =>
        limit.pool ? [limits[name], limitsSettled?.[name]] : [its?.taken[name], its?.settled?.[name]],
      options,
    )
    return { ...auditLimit(widest, charges), ...(limit.by === 'group' ? { group: value } : { value }) }
  })
  const [first = auditLimit(limit, [])] = found
  const worst = worseOf(found.map((one) => one.worst))
  const notes = [
    ...(widest === limit ? [] : ['checked against the widest of its tiers']),
    ...(byValue.size > checked.length ? [`${byValue.size - checked.length} values of their own were not checked`] : []),
  ]
  return {
    ...(found.find((one) => worst && one.worst === worst) ?? first),
    ...(notes.length > 0 ? { note: notes.join('; ') } : {}),
    departures: found.reduce((sum, one) => sum + one.departures, 0),
    broken: found.some(({ broken }) => broken),
  }
}

/** Departures lack the tier of their jobs: no tier lets more pass than this. */
function widestOf(limit: QueueLimit): QueueLimit {
  if (!limit.tiers) return limit
  const all = [limit, ...Object.keys(limit.tiers).map((tier) => ruleOfTier(limit, tier))]
  const rates = all.flatMap(({ rate }) => (rate === undefined ? [] : [rate]))
  const [fastest] = rates.map((rate) => encodeRate(rate)).toSorted(([a, aMs], [b, bMs]) => aMs / a - bMs / b)
  const isOne = rates.every((one) => one === rates[0])
  const rate = isOne ? rates[0] : fastest && { limit: fastest[0], period: fastest[1] }
  return {
    ...limit,
    ...(rate === undefined ? {} : { rate }),
    ...(all.some(({ burst }) => burst !== undefined) ? { burst: Math.max(...all.map(({ burst = 1 }) => burst)) } : {}),
  }
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
  takenBy: (entry: AuditEntry) => readonly [cost: number | undefined, settled: SettledLimit | undefined],
  { limitsSinceUs = 0 }: AuditOptions,
): Charge[] {
  return entries
    .flatMap((entry): Charge[] => {
      const [cost, { refunded = 0, chargedUs = [] } = {}] = takenBy(entry)
      if (cost === undefined) return []
      const later = chargedUs.map((us): Charge => ({ us, cost: 0, isSettled: true }))
      return [{ us: entry.slotUs, cost: Math.max(0, cost - refunded) }, ...later]
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
    const { paced } = stretchesOf(
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

function latenessOf(entries: readonly AuditEntry[]): Lateness | undefined {
  const late = entries
    .flatMap(({ startedUs, slotUs }) => (startedUs === undefined ? [] : [startedUs - slotUs]))
    .sort((one, other) => one - other)
  if (late.length === 0) return undefined
  const rank = (part: number) => late[Math.ceil(part * late.length) - 1] as number
  const early = late.filter((us) => us < 0).length
  return { starts: late.length, early, p50Us: rank(0.5), p99Us: rank(0.99), maxUs: late.at(-1) as number }
}
