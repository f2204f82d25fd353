import type { ChargedRule } from '../inspect/queue-status.ts'
import { type CalendarAlign, encodeRule, isBucket, isCalendar, type LimitWire } from '../limits/definition.ts'
import { onFirstDay, type QueueLimit } from '../limits/queue-limits.ts'
import { ServiceCurve } from '../shape/service-curve.ts'
import { type AuditedWindow, TOLERANCE_US, worseOf, worstBucketWindow } from './bucket-window.ts'
import type { PacedDeparture } from './stretches.ts'

const DAY_MS = 86_400_000
const TICKS_PER_US = 1024

/** The result of an audit for one limit. */
export interface LimitAudit {
  readonly name: string
  readonly algorithm: string
  /** Departures that it charged. */
  readonly departures: number
  /** Of a limit with `by`, or a pool: of how many values or members it counted departures. */
  readonly values?: number
  /** Of these, the one whose window is the worst: its keys by name, `group: ''` for jobs without a group, `member` of a pool. */
  readonly keys?: Readonly<Record<string, string>>
  /** Undefined where nothing was charged, or where departures do not show it. */
  readonly worst: AuditedWindow | undefined
  readonly broken: boolean
  /** Why it was not checked, or what the check does not cover. */
  readonly note?: string
}

/**
 * Checks charges against the rule of a limit.
 * @param charges in the order of their times
 */
export function auditLimit(given: QueueLimit, charges: readonly Charge[]): LimitAudit {
  // Of a warm-up plan, each charge has the quota of its own.
  const limit = onFirstDay(given)
  const { algorithm = 'gcra', name, mode = 'enforce', shared } = limit
  const departures = charges.filter(({ isSettled }) => !isSettled)
  const found = { name, algorithm, departures: departures.length }
  if (mode !== 'enforce')
    return { ...found, worst: undefined, broken: false, note: `mode ${mode}: it holds nothing back` }
  if (algorithm === 'concurrency') {
    return { ...found, worst: undefined, broken: false, note: 'not checked: departures do not tell when jobs end' }
  }
  const wire = encodeRule(limit)
  const worst = worstWindow(wire, limit, wire.align === 'first' ? charges : departures)
  const note = shared ? { note: 'shared: only what this queue took' } : {}
  return { ...found, worst, broken: (worst?.excessUs ?? 0) > TOLERANCE_US, ...note }
}

function worstWindow(wire: LimitWire, limit: QueueLimit, charges: readonly Charge[]): AuditedWindow | undefined {
  if (isBucket(wire.algorithm)) return worstOfBucket(wire, charges)
  const [most, windowUs] = [wire.limit as number, wire.window as number]
  switch (wire.algorithm) {
    case 'sliding-window-log':
      return worstSlidingWindow(charges, most, windowUs)
    case 'sliding-window-counter':
      return worstCountedWindow(charges, most, windowUs)
    default:
      // A new algorithm does not compile until it has a case.
      wire.algorithm satisfies 'fixed-window' | 'concurrency'
      return worstWindowOfClock(wire, limit, charges)
  }
}

/** Charges under one schedule, or under none, are checked together. */
function worstOfBucket({ interval = 0, burst = 1, schedule }: LimitWire, charges: readonly Charge[]) {
  const paced = charges.map(({ us, cost, rule }) => ({
    slotUs: us,
    cost,
    intervalUs: rule?.intervalUs ?? interval,
    burst: rule?.burst ?? burst,
    schedule: rule ? rule.schedule : schedule,
  }))
  const runs: (typeof paced)[] = []
  for (const one of paced) {
    const before = runs.at(-1)?.at(-1)
    if (before && JSON.stringify(before.schedule) === JSON.stringify(one.schedule)) runs.at(-1)?.push(one)
    else runs.push([one])
  }
  return worseOf(
    runs.map((run) => {
      const [first] = run
      return first?.schedule ? worstScheduled(first.schedule, first.intervalUs, run) : worstBucketWindow(run)
    }),
  )
}

/** At a rate that follows the clock, the bucket counts in its service. */
function worstScheduled(
  schedule: NonNullable<LimitWire['schedule']>,
  intervalUs: number,
  charges: readonly PacedDeparture[],
): AuditedWindow | undefined {
  const times = charges.map(({ slotUs }) => slotUs)
  const [firstUs = 0] = times
  const curve = new ServiceCurve([1, 1, schedule], intervalUs, firstUs)
  const start = curve.at(firstUs)
  const served = times.map((us) => Number(curve.at(us) - start) / TICKS_PER_US)
  const found = worstBucketWindow(charges.map((one, i) => ({ ...one, slotUs: served[i] as number })))
  return (
    found && {
      ...found,
      fromUs: times[served.indexOf(found.fromUs)] as number,
      toUs: times[served.lastIndexOf(found.toUs)] as number,
    }
  )
}

function worstWindowOfClock(wire: LimitWire, limit: QueueLimit, charges: readonly Charge[]): AuditedWindow | undefined {
  const [most, windowUs] = [wire.limit as number, wire.window as number]
  if (wire.align === 'first') return worstFirstWindow(charges, most, windowUs)
  if (isCalendar(wire.align)) return worstFixedWindow(charges, most, windowOf(wire.align, limit.timeZone ?? 'UTC'))
  return worstFixedWindow(charges, most, (us) => Math.floor(us / windowUs))
}

/** Names the window of a time. */
function windowOf(align: CalendarAlign, timeZone: string): (us: number) => string | number {
  const days = new Intl.DateTimeFormat('en-CA', { timeZone, year: 'numeric', month: '2-digit', day: '2-digit' })
  return (us) => {
    const day = days.format(us / 1000)
    if (align === 'month') return day.slice(0, -3)
    // 1 January 1970 was a Thursday.
    return align === 'week' ? Math.floor((Date.parse(day) / DAY_MS + 3) / 7) : day
  }
}

export interface Charge {
  readonly us: number
  /** Without refunds. */
  readonly cost: number
  /** What its value was allowed then; undefined where that is what the limit says of all. */
  readonly rule?: ChargedRule
  /** A later charge for a job that cost more than expected, of cost 0: it breaks no bound, but may begin a window. */
  readonly isSettled?: boolean
}

/** The cost in a window up to a charge, and what was allowed then. */
interface Count {
  readonly fromUs: number
  readonly toUs: number
  readonly cost: number
  readonly allowed: number
}

/** Windows at any position (the log): a charge from a whole window ago no longer counts. */
function worstSlidingWindow(charges: readonly Charge[], limit: number, windowUs: number): AuditedWindow | undefined {
  const counts: Count[] = []
  const allowed = allowedBy(limit, charges)
  let first = 0
  let cost = 0
  for (const charge of charges) {
    cost += charge.cost
    while ((charges[first] as Charge).us <= charge.us - windowUs) {
      cost -= (charges[first] as Charge).cost
      first += 1
    }
    counts.push({ fromUs: (charges[first] as Charge).us, toUs: charge.us, cost, allowed: allowed(charge) })
  }
  return fullest(counts)
}

/** Consecutive windows. @param windowOf names the window of a time */
function worstFixedWindow(
  charges: readonly Charge[],
  limit: number,
  windowOf: (us: number) => string | number,
): AuditedWindow | undefined {
  const allowed = allowedBy(limit, charges)
  const last = new Map<string | number, Count>()
  const counts = charges.map((charge) => {
    const name = windowOf(charge.us)
    const { fromUs = charge.us, cost = 0 } = last.get(name) ?? {}
    const count = { fromUs, toUs: charge.us, cost: cost + charge.cost, allowed: allowed(charge) }
    last.set(name, count)
    return count
  })
  return fullest(counts)
}

/**
 * Windows that begin with their first unit. The first known beginning comes after a whole window without a charge;
 * charges before it are not counted. A beginning is also unknown after a window that was refunded completely: if that
 * was before the next charge, that one began another window.
 */
function worstFirstWindow(charges: readonly Charge[], limit: number, windowUs: number): AuditedWindow | undefined {
  const counts: Count[] = []
  const allowed = allowedBy(limit, charges)
  let current: Count | undefined
  let before: number | undefined
  for (const charge of charges) {
    const { us, cost } = charge
    const within = current && us < current.fromUs + windowUs ? current : undefined
    const quiet = before !== undefined && us - before >= windowUs
    const count = { fromUs: within?.fromUs ?? us, toUs: us, cost: (within?.cost ?? 0) + cost, allowed: allowed(charge) }
    if (within) current = within.cost > 0 ? count : undefined
    else if (current || quiet) current = count
    if (current) counts.push(current)
    before = us
  }
  return fullest(counts)
}

/**
 * The sliding window counter: the current window, and the share of the previous one that a window ending now still
 * covers.
 */
function worstCountedWindow(charges: readonly Charge[], limit: number, windowUs: number): AuditedWindow | undefined {
  const counts: Count[] = []
  const allowed = allowedBy(limit, charges)
  let window = { start: Number.NEGATIVE_INFINITY, used: 0, before: 0 }
  for (const charge of charges) {
    const { us } = charge
    const start = us - (us % windowUs)
    if (start > window.start) {
      window = { start, used: 0, before: start === window.start + windowUs ? window.used : 0 }
    }
    window.used += charge.cost
    const cost = window.used + window.before * (1 - (us - window.start) / windowUs)
    counts.push({ fromUs: Math.max(0, us - windowUs), toUs: us, cost, allowed: allowed(charge) })
  }
  return fullest(counts)
}

/** A cost above the limit (which was lowered since) conforms while nothing else is charged. */
function allowedBy(limit: number, charges: readonly Charge[]): (charge: Charge) => number {
  const costliest = charges.reduce((most, { cost }) => Math.max(most, cost), 0)
  return ({ rule }) => Math.max(rule?.limit ?? limit, costliest)
}

/** Windows have a fixed length: the excess is in units. */
function fullest(counts: readonly Count[]): AuditedWindow | undefined {
  const left = ({ cost, allowed }: Count) => allowed - cost
  const worst = counts.reduce<Count | undefined>(
    (most, one) => (!most || left(one) < left(most) ? one : most),
    undefined,
  )
  return worst && { ...worst, excessUs: worst.cost > worst.allowed * (1 + 1e-9) ? Number.POSITIVE_INFINITY : 0 }
}
