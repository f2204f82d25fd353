import type { AuditedWindow } from './bucket-window.ts'

export interface Charge {
  readonly us: number
  readonly cost: number
}

/** The cost in a window, up to the charge at which it was fullest. */
interface Count {
  readonly fromUs: number
  readonly toUs: number
  readonly cost: number
}

/** Windows at any position (the log): a charge from a whole window ago no longer counts. */
export function worstSlidingWindow(
  charges: readonly Charge[],
  limit: number,
  windowUs: number,
): AuditedWindow | undefined {
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
export function worstFixedWindow(
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
 * Windows that begin with their first unit. The first one whose beginning is known comes after a whole window without a
 * charge; charges before it are not counted.
 */
export function worstFirstWindow(
  charges: readonly Charge[],
  limit: number,
  windowUs: number,
): AuditedWindow | undefined {
  const counts: Count[] = []
  let current: Count | undefined
  let before: number | undefined
  for (const { us, cost } of charges) {
    const quiet = before !== undefined && us - before >= windowUs
    if (current && us < current.fromUs + windowUs) current = { ...current, toUs: us, cost: current.cost + cost }
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
export function worstCountedWindow(
  charges: readonly Charge[],
  limit: number,
  windowUs: number,
): AuditedWindow | undefined {
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
