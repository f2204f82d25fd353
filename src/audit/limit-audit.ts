import { encodeRule, isBucket, type LimitWire } from '../limits/definition.ts'
import type { QueueLimit } from '../limits/queue-limits.ts'
import { type AuditedWindow, TOLERANCE_US, worstBucketWindow } from './bucket-window.ts'
import {
  type Charge,
  worstCountedWindow,
  worstFirstWindow,
  worstFixedWindow,
  worstSlidingWindow,
} from './window-count.ts'

/** The result of an audit for one limit. */
export interface LimitAudit {
  readonly name: string
  readonly algorithm: string
  /** Departures that were charged to it. */
  readonly departures: number
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
export function auditLimit(limit: QueueLimit, charges: readonly Charge[]): LimitAudit {
  const { algorithm = 'gcra', name, mode = 'enforce', shared } = limit
  const found = { name, algorithm, departures: charges.length }
  if (mode !== 'enforce') return { ...found, worst: undefined, broken: false, note: `mode ${mode}: it holds nothing` }
  if (algorithm === 'concurrency') {
    return { ...found, worst: undefined, broken: false, note: 'not checked: departures do not tell when jobs end' }
  }
  const { key: _, prefix: __, version: ___, unit: ____, shared: _____, name: ______, mode: _______, ...rule } = limit
  const worst = worstWindow(encodeRule(rule), limit, charges)
  const note = shared ? { note: 'shared: only what this queue took' } : {}
  return { ...found, worst, broken: (worst?.excessUs ?? 0) > TOLERANCE_US, ...note }
}

function worstWindow(wire: LimitWire, limit: QueueLimit, charges: readonly Charge[]): AuditedWindow | undefined {
  if (isBucket(wire.algorithm)) {
    const { interval = 0, burst = 1 } = wire
    return worstBucketWindow(charges.map(({ us, cost }) => ({ slotUs: us, cost, intervalUs: interval, burst })))
  }
  const [most, windowUs] = [wire.limit as number, wire.window as number]
  if (wire.algorithm === 'sliding-window-log') return worstSlidingWindow(charges, most, windowUs)
  if (wire.algorithm === 'sliding-window-counter') return worstCountedWindow(charges, most, windowUs)
  if (wire.align === 'first') return worstFirstWindow(charges, most, windowUs)
  if (wire.align === 'day') return worstFixedWindow(charges, most, dayOf(limit.timeZone ?? 'UTC'))
  return worstFixedWindow(charges, most, (us) => Math.floor(us / windowUs))
}

function dayOf(timeZone: string): (us: number) => string {
  const days = new Intl.DateTimeFormat('en-CA', { timeZone, year: 'numeric', month: '2-digit', day: '2-digit' })
  return (us) => days.format(us / 1000)
}
