import { type CalendarAlign, encodeRule, isBucket, isCalendar, type LimitWire } from '../limits/definition.ts'
import type { QueueLimit } from '../limits/queue-limits.ts'
import { ServiceCurve } from '../shape/service-curve.ts'
import { type AuditedWindow, TOLERANCE_US, worstBucketWindow } from './bucket-window.ts'

const DAY_MS = 86_400_000
const TICKS_PER_US = 1024

/** The result of an audit for one limit. */
export interface LimitAudit {
  readonly name: string
  readonly algorithm: string
  /** Departures that it charged. */
  readonly departures: number
  /** For a limit by group: the group with the worst window, '' for jobs without a group. */
  readonly group?: string
  /** For a limit by other keys: their value with the worst window; for a pool, the member. */
  readonly value?: string
  /** Undefined if nothing was charged, or if departures do not show it. */
  readonly worst: AuditedWindow | undefined
  readonly broken: boolean
  /** Why it was not checked, or what the check does not cover. */
  readonly note?: string
}

/**
 * Checks charges against the rule of a limit.
 * @param charges in the order of their times
 */
export function auditLimit(limit: QueueLimit, charges: readonly Charge[]): LimitAudit {
  const { algorithm = 'gcra', name, mode = 'enforce', shared } = limit
  const departures = charges.filter(({ isSettled }) => !isSettled)
  const found = { name, algorithm, departures: departures.length }
  if (mode !== 'enforce') return { ...found, worst: undefined, broken: false, note: `mode ${mode}: it holds nothing` }
  if (limit.warmUp) {
    return { ...found, worst: undefined, broken: false, note: 'not checked: each value has the quota of its day' }
  }
  if (algorithm === 'concurrency') {
    return { ...found, worst: undefined, broken: false, note: 'not checked: departures do not tell when jobs end' }
  }
  const {
    key: _,
    prefix: __,
    version: ___,
    unit: ____,
    shared: _____,
    name: ______,
    mode: _______,
    by: ________,
    pool: _________,
    sticky: __________,
    ...rule
  } = limit
  const wire = encodeRule(rule)
  const worst = worstWindow(wire, limit, wire.align === 'first' ? charges : departures)
  const note = shared ? { note: 'shared: only what this queue took' } : {}
  return { ...found, worst, broken: (worst?.excessUs ?? 0) > TOLERANCE_US, ...note }
}

function worstWindow(wire: LimitWire, limit: QueueLimit, charges: readonly Charge[]): AuditedWindow | undefined {
  if (isBucket(wire.algorithm)) {
    const { interval = 0, burst = 1 } = wire
    const paced = (us: readonly number[]) =>
      worstBucketWindow(charges.map(({ cost }, i) => ({ slotUs: us[i] as number, cost, intervalUs: interval, burst })))
    const times = charges.map(({ us }) => us)
    return wire.schedule ? worstScheduled(wire.schedule, interval, times, paced) : paced(times)
  }
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

/** At a rate that follows the clock, the bucket counts in its service. */
function worstScheduled(
  schedule: NonNullable<LimitWire['schedule']>,
  intervalUs: number,
  times: readonly number[],
  worst: (us: readonly number[]) => AuditedWindow | undefined,
): AuditedWindow | undefined {
  const [firstUs = 0] = times
  const curve = new ServiceCurve([1, 1, schedule], intervalUs, firstUs)
  const start = curve.at(firstUs)
  const served = times.map((us) => Number(curve.at(us) - start) / TICKS_PER_US)
  const found = worst(served)
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
  /** A later charge for a job that cost more than expected, of cost 0: it breaks no bound, but may begin a window. */
  readonly isSettled?: boolean
}

/** The cost in a window, up to the charge at which it was fullest. */
interface Count {
  readonly fromUs: number
  readonly toUs: number
  readonly cost: number
}

/** Windows at any position (the log): a charge from a whole window ago no longer counts. */
function worstSlidingWindow(charges: readonly Charge[], limit: number, windowUs: number): AuditedWindow | undefined {
  const counts: Count[] = []
  let first = 0
  let cost = 0
  for (const charge of charges) {
    cost += charge.cost
    while ((charges[first] as Charge).us <= charge.us - windowUs) {
      cost -= (charges[first] as Charge).cost
      first += 1
    }
    counts.push({ fromUs: (charges[first] as Charge).us, toUs: charge.us, cost })
  }
  return fullest(counts, allowedOf(limit, charges))
}

/** Consecutive windows. @param windowOf names the window of a time */
function worstFixedWindow(
  charges: readonly Charge[],
  limit: number,
  windowOf: (us: number) => string | number,
): AuditedWindow | undefined {
  const counts = new Map<string | number, Count>()
  for (const { us, cost } of charges) {
    const name = windowOf(us)
    const before = counts.get(name)
    counts.set(name, { fromUs: before?.fromUs ?? us, toUs: us, cost: (before?.cost ?? 0) + cost })
  }
  return fullest([...counts.values()], allowedOf(limit, charges))
}

/**
 * Windows that begin with their first unit. The first known beginning comes after a whole window without a charge;
 * charges before it are not counted. A beginning is also unknown after a window that was refunded completely: if that
 * was before the next charge, that one began another window.
 */
function worstFirstWindow(charges: readonly Charge[], limit: number, windowUs: number): AuditedWindow | undefined {
  const counts: Count[] = []
  let current: Count | undefined
  let before: number | undefined
  for (const { us, cost } of charges) {
    const within = current && us < current.fromUs + windowUs ? current : undefined
    const quiet = before !== undefined && us - before >= windowUs
    if (within) current = within.cost > 0 ? { ...within, toUs: us, cost: within.cost + cost } : undefined
    else if (current || quiet) current = { fromUs: us, toUs: us, cost }
    if (current) counts.push(current)
    before = us
  }
  return fullest(counts, allowedOf(limit, charges))
}

/**
 * The sliding window counter: the current window, and the share of the previous one that a window ending now still
 * covers.
 */
function worstCountedWindow(charges: readonly Charge[], limit: number, windowUs: number): AuditedWindow | undefined {
  const counts: Count[] = []
  let window = { start: Number.NEGATIVE_INFINITY, used: 0, before: 0 }
  for (const { us, cost } of charges) {
    const start = us - (us % windowUs)
    if (start > window.start) {
      window = { start, used: 0, before: start === window.start + windowUs ? window.used : 0 }
    }
    window.used += cost
    const reaches = 1 - (us - window.start) / windowUs
    counts.push({ fromUs: Math.max(0, us - windowUs), toUs: us, cost: window.used + window.before * reaches })
  }
  return fullest(counts, allowedOf(limit, charges))
}

/** A cost above the limit (which was lowered since) conforms while nothing else is charged. */
function allowedOf(limit: number, charges: readonly Charge[]): number {
  return charges.reduce((most, { cost }) => Math.max(most, cost), limit)
}

/** Windows have a fixed length: the excess is in units. */
function fullest(counts: readonly Count[], allowed: number): AuditedWindow | undefined {
  const worst = counts.reduce<Count | undefined>((most, one) => (!most || one.cost > most.cost ? one : most), undefined)
  return worst && { ...worst, allowed, excessUs: worst.cost > allowed * (1 + 1e-9) ? Number.POSITIVE_INFINITY : 0 }
}
