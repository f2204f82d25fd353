// Limits per group and the bucket of a group in plain TypeScript, by all that was charged: what `reference.ts` decides by,
// and checks against what jobs have really cost.

const GRID = 1024

export type Rate = readonly [limit: number, periodMs: number]

/** A limit that holds for each group. */
export interface Limit {
  readonly algorithm: 'gcra' | 'fixed-window' | 'sliding-window-log'
  readonly limit: number
  readonly periodMs: number
  /** Of `gcra`. */
  readonly burst: number
  /** Whether it counts tokens, and not the cost of a job. */
  readonly isOfTokens: boolean
}

export interface Charge {
  readonly atUs: number
  /** 0 once it was given back. */
  cost: number
  /** What the job that was charged has cost; undefined for what was charged, or given back, later. */
  trueCost?: number
}

/** What the bucket of a group has seen: jobs, with what they have cost, and changes of its rate. */
export type Seen =
  | { readonly slotUs: number; trueCost: number }
  | { readonly fromUs: number; readonly intervalUs: number; readonly burst: number }

export interface Bucket {
  tat: number
  last: number
  intervalUs: number
  burst: number
}

/** Rounded up to the grid of the bucket. */
export const ceil = (us: number) => Math.ceil(us * GRID) / GRID

export function intervalOf([limit, periodMs]: Rate): number {
  return ceil((periodMs * 1000) / limit)
}

export function costUnder({ isOfTokens }: Limit, { cost, tokens }: { cost: number; tokens: number }): number {
  return isOfTokens ? tokens : cost
}

/** The first time at which a cost conforms, by all that was charged before; it may lie in the past. */
export function earliest(limit: Limit, charges: readonly Charge[], cost: number): number {
  switch (limit.algorithm) {
    case 'gcra':
      return byBucket(limit, charges, cost)
    case 'fixed-window':
      return byWindow(limit, charges, cost)
    default:
      return byLog(limit, charges, cost)
  }
}

function byBucket({ limit, periodMs, burst }: Limit, charges: readonly Charge[], cost: number): number {
  const intervalUs = ceil((periodMs * 1000) / limit)
  const tatUs = charges.reduce((tat, { atUs, cost }) => {
    const next = Math.max(tat, atUs) + ceil(cost * intervalUs)
    // What is given back fills no bucket above its burst.
    return cost < 0 ? Math.max(atUs, next) : next
  }, 0)
  return Math.ceil(tatUs + ceil((Math.min(cost, burst) - burst) * intervalUs))
}

/** In the window of the last charge, if it fits there or nothing was charged; else in the next one. */
function byWindow({ limit, periodMs }: Limit, charges: readonly Charge[], cost: number): number {
  const windowOf = ({ atUs }: Charge) => Math.floor(atUs / (periodMs * 1000))
  const last = charges.at(-1)
  if (!last) return 0
  const inLast = charges.filter((charge) => windowOf(charge) === windowOf(last))
  const used = inLast.reduce((sum, charge) => sum + charge.cost, 0)
  return (used === 0 || used + cost <= limit ? windowOf(last) : windowOf(last) + 1) * periodMs * 1000
}

/** Not before the last charge, and once so much has left the window that the cost fits. */
function byLog({ limit, periodMs }: Limit, charges: readonly Charge[], cost: number): number {
  const lastUs = charges.findLast((charge) => charge.cost > 0)?.atUs ?? 0
  const most = Math.max(0, limit - cost)
  let kept = 0
  for (let i = charges.length - 1; i >= 0; i--) {
    kept += (charges[i] as Charge).cost
    if (kept > most) return Math.max(lastUs, (charges[i] as Charge).atUs + periodMs * 1000)
  }
  return lastUs
}

export function reshaped(bucket: Omit<Bucket, 'last'>, fromUs: number, intervalUs: number, burst: number) {
  const debt = Math.max(0, bucket.tat - fromUs) / bucket.intervalUs
  const owed = Math.max(0, burst - (bucket.burst - debt))
  return { tat: fromUs + ceil(owed * intervalUs), intervalUs, burst }
}

/** What the bucket would be if each job had been charged at its slot what it has cost. */
export function trueTat(seen: readonly Seen[]): number {
  let bucket = { tat: 0, intervalUs: 0, burst: 0 }
  for (const one of seen) {
    if ('slotUs' in one) {
      const tat = Math.max(bucket.tat, one.slotUs) + ceil(one.trueCost * bucket.intervalUs)
      bucket = { ...bucket, tat }
    } else if (bucket.intervalUs === 0) {
      bucket = { tat: 0, intervalUs: one.intervalUs, burst: one.burst }
    } else {
      bucket = reshaped(bucket, one.fromUs, one.intervalUs, one.burst)
    }
  }
  return bucket.tat
}

export function check(what: string, charged: number, least: number): void {
  if (charged < least - 0.01) throw new Error(`${what} forgets what was used: ${charged} is below ${least}`)
}

export function settleLimit(limit: Limit, charges: Charge[], slotUs: number, change: number, nowUs: number): void {
  const lastUs = charges.at(-1)?.atUs ?? 0
  if (limit.algorithm === 'gcra') {
    const aheadUs = Math.max(nowUs, ...charges.flatMap(({ atUs, trueCost }) => (trueCost === undefined ? [] : [atUs])))
    // The slot of a job that was to take nothing, and still lies ahead, is none of those.
    const sinceUs = Math.max(0, aheadUs - slotUs)
    const back = Math.max(0, -change - sinceUs / intervalOf([limit.limit, limit.periodMs]))
    charges.push({ atUs: nowUs, cost: change > 0 ? change : -back })
  } else if (change > 0) {
    charges.push({ atUs: Math.max(nowUs, lastUs), cost: change })
  } else if (limit.algorithm === 'fixed-window') {
    const windowOf = (us: number) => Math.floor(us / (limit.periodMs * 1000))
    const isCurrent = windowOf(slotUs) === Math.max(windowOf(nowUs), windowOf(lastUs))
    if (isCurrent) charges.push({ atUs: lastUs, cost: change })
  } else {
    settleLog(limit, charges, slotUs, -change, nowUs)
  }
}

/**
 * What a job was charged that goes back before it has started: of a bucket only if none has a later slot, of a window if
 * that still counts.
 * @returns whether anything was given back
 */
export function takeBack(limit: Limit, charges: Charge[], slotUs: number, cost: number, nowUs: number): boolean {
  if (cost === 0) return false
  if (limit.algorithm === 'gcra') {
    const lastUs = Math.max(...charges.flatMap(({ atUs, trueCost }) => (trueCost === undefined ? [] : [atUs])))
    if (lastUs === slotUs) charges.push({ atUs: nowUs, cost: -cost })
    return lastUs === slotUs
  }
  const windowUs = limit.periodMs * 1000
  const windowOf = (us: number) => Math.floor(us / windowUs)
  const currentUs = Math.max(nowUs, charges.at(-1)?.atUs ?? 0)
  const isWindow = limit.algorithm === 'fixed-window'
  const counts = isWindow ? windowOf(slotUs) === windowOf(currentUs) : slotUs > nowUs - windowUs
  const own = charges.filter(({ atUs, cost: charged }) => atUs === slotUs && charged > 0)
  const used = charges.reduce(
    (sum, { atUs, cost: charged }) => sum + (windowOf(atUs) === windowOf(slotUs) ? charged : 0),
    0,
  )
  let back = isWindow ? Math.min(cost, used) : cost
  if (!counts || back <= 0 || (!isWindow && own.length === 0)) return false
  if (isWindow) {
    charges.push({ atUs: charges.at(-1)?.atUs ?? 0, cost: -back })
    return true
  }
  for (const charge of own) {
    const taken = Math.min(back, charge.cost)
    charge.cost -= taken
    back -= taken
  }
  return true
}

/** What is given back is that of the oldest charges. */
function settleLog({ periodMs }: Limit, charges: Charge[], slotUs: number, units: number, nowUs: number): void {
  const counted = charges.filter(({ atUs }) => atUs > nowUs - periodMs * 1000)
  const most = counted.reduce((sum, { atUs, cost }) => sum + (atUs <= slotUs ? cost : 0), 0)
  let back = Math.min(units, most)
  for (const charge of counted) {
    const taken = Math.min(back, charge.cost)
    charge.cost -= taken
    back -= taken
  }
}

/** No limit counts less than what jobs have cost. */
export function checkLimit(limit: Limit, charges: readonly Charge[], nowUs: number): void {
  const real = charges.flatMap(({ atUs, trueCost }) => (trueCost === undefined ? [] : [{ atUs, cost: trueCost }]))
  if (limit.algorithm === 'gcra') {
    const charged = Math.max(nowUs, byBucket(limit, charges, limit.burst))
    check('a bucket', charged, byBucket(limit, real, limit.burst))
    return
  }
  const windowUs = limit.periodMs * 1000
  const isWindow = limit.algorithm === 'fixed-window'
  const lastUs = Math.max(nowUs, charges.at(-1)?.atUs ?? 0)
  const fromUs = isWindow ? lastUs - (lastUs % windowUs) : nowUs - windowUs + 1
  for (const { atUs: us } of isWindow ? [{ atUs: fromUs }] : real.filter(({ atUs }) => atUs >= fromUs)) {
    const since = (all: readonly Charge[]) => all.reduce((sum, { atUs, cost }) => sum + (atUs >= us ? cost : 0), 0)
    check('a window', since(charges), since(real))
  }
}

/** How far a bucket goes back by what a job that left at a slot cost less. */
export function givenBack({ tat: _, last, intervalUs }: Bucket, units: number, slotUs: number, nowUs: number): number {
  const back = Math.max(0, units - (Math.max(nowUs, last) - slotUs) / intervalUs)
  return Math.floor(back * intervalUs * GRID) / GRID
}
