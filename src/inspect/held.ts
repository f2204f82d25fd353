import type { MeterFields } from './bucket.ts'
import { type HeldMs, HOLD_CAUSES, type Hold, type HoldCause } from './queue-status.ts'

const FIELDS: Readonly<Record<HoldCause, string>> = {
  rate: 'heldRate',
  limits: 'heldLimits',
  concurrency: 'heldConcurrency',
  pause: 'heldPause',
  workers: 'heldWorkers',
}

/**
 * What the head of a queue waits for, and for how long each cause has held a head so far. Times are µs on Redis's
 * clock.
 */
export interface Held {
  readonly hold: Hold | undefined
  readonly heldMs: HeldMs
  /** For how long the queue has lacked a worker, whichever job was at its head, ms. */
  readonly wantedMs: number
}

/** What is known of the queue besides its meter. */
export interface HeldQueue {
  readonly nowUs: number
  readonly isWaiting: boolean
  /** Jobs that run now. */
  readonly active: number
  /** Since when the job at the head could start; undefined where unknown. */
  readonly headReadyUs: number | undefined
  /** Whether a pause holds, BullMQ's or the meter's; the next field is its end (µs), where it has one. */
  readonly isPaused: boolean
  readonly pausedUntilUs: number | undefined
}

/**
 * The clocks of `lua/gate/held.lua` as of now. Since a worker last looked, the head was held by the cause that the
 * worker found, and from the head's slot on by the lack of a worker.
 */
export function heldAt(meter: MeterFields, queue: HeldQueue): Held {
  const us: Record<HoldCause, number> = mapCauses((cause) => Number(meter[FIELDS[cause]] ?? 0))
  const found = queue.isWaiting ? foundHold(meter) : undefined
  if (found) {
    const slotUs = Math.max(found.atUs, Math.min(found.untilUs ?? queue.nowUs, queue.nowUs))
    us[found.cause] += slotUs - found.atUs
    us.workers += Math.max(0, queue.nowUs - slotUs)
  }
  const hold = holdNow(found, meter, queue)
  return {
    hold: hold && ofHead(hold, queue),
    heldMs: mapCauses((cause) => us[cause] / 1000),
    wantedMs: hold?.cause === 'workers' ? queue.nowUs / 1000 - hold.since.getTime() : 0,
  }
}

/** A cause may have held earlier jobs. It has held the job at the head only since that job became ready. */
function ofHead(hold: Hold, { nowUs, headReadyUs = 0 }: HeldQueue): Hold {
  return { ...hold, since: date(Math.max(hold.since.getTime() * 1000, Math.min(headReadyUs, nowUs))) }
}

/** Computes a value for each cause. */
export function mapCauses(of: (cause: HoldCause) => number): HeldMs {
  const values: Partial<Record<HoldCause, number>> = {}
  for (const cause of HOLD_CAUSES) values[cause] = of(cause)
  return values as HeldMs
}

interface Found {
  readonly cause: HoldCause
  readonly limit: string | undefined
  readonly atUs: number
  readonly sinceUs: number
  readonly untilUs: number | undefined
}

/** What a worker found when it last looked; undefined where nothing waited then. */
function foundHold(meter: MeterFields): Found | undefined {
  const [, name, limit] = /^([a-z]+)(?::(.*))?$/s.exec(meter.holds ?? '') ?? []
  const cause = HOLD_CAUSES.find((one) => one === name)
  if (cause === undefined || meter.heldAt === undefined) return undefined
  const atUs = Number(meter.heldAt)
  const untilUs = meter.holdsUntil ? Number(meter.holdsUntil) : undefined
  return { cause, limit, atUs, sinceUs: Number(meter.holdsSince ?? atUs), untilUs }
}

/** A pause holds from the moment it is set, whether or not a worker has looked since. */
function holdNow(found: Found | undefined, meter: MeterFields, queue: HeldQueue): Hold | undefined {
  const { nowUs, isWaiting, isPaused, pausedUntilUs, active } = queue
  if (!isWaiting) return undefined
  if (isPaused) {
    const sinceUs = found?.cause === 'pause' ? found.sinceUs : lookedUs(meter, queue)
    return { cause: 'pause', since: date(sinceUs), ...(pausedUntilUs ? { until: date(pausedUntilUs) } : {}) }
  }
  // No job runs, so the workers whose jobs took all places stopped without a last look.
  const areGone = found?.cause === 'concurrency' && active === 0
  if (!found || areGone) return { cause: 'workers', since: date(lookedUs(meter, queue)) }
  const { cause, limit, sinceUs, untilUs } = found
  // Workers that take jobs are busy: the next job lacks one since the last departure.
  if (cause === 'workers') return { cause, since: date(Math.min(nowUs, Math.max(sinceUs, departedUs(meter)))) }
  if (untilUs !== undefined && untilUs <= nowUs) return { cause: 'workers', since: date(untilUs) }
  const until = untilUs === undefined ? {} : { until: date(untilUs) }
  return { cause, ...(limit === undefined ? {} : { limit }), since: date(sinceUs), ...until }
}

/** The last departure, as far as it is known, µs. */
function departedUs({ leftAt, seen }: MeterFields): number {
  return Math.max(Number(leftAt ?? 0), Number(seen ?? 0))
}

/** Since when no worker has looked at the job that is at the head now. */
function lookedUs(meter: MeterFields, { nowUs, headReadyUs }: HeldQueue): number {
  return Math.min(nowUs, Math.max(Number(meter.heldAt ?? 0), headReadyUs ?? 0) || nowUs)
}

function date(us: number): Date {
  return new Date(us / 1000)
}
