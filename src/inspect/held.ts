import type { StoredClosed } from '../queue/groups.ts'
import { HOLD_CAUSES, type Hold, type HoldCause } from './queue-status.ts'

/** The wait of a queue's head. Times are µs on Redis's clock. */
export interface Held {
  readonly hold: Hold | undefined
  /** For how long the queue has lacked a worker, whichever job was at its head, ms. */
  readonly wantedMs: number
}

type Fields = Readonly<Record<string, string>>

/** The state of the queue besides its meter. */
export interface HeldQueue {
  readonly nowUs: number
  readonly isWaiting: boolean
  /** Jobs that run now. */
  readonly active: number
  /** When the job at the head could have started; undefined if unknown. */
  readonly headReadyUs: number | undefined
  /** Whether a pause holds, BullMQ's or the meter's; the next field is its end (µs), if it has one. */
  readonly isPaused: boolean
  readonly pausedUntilUs: number | undefined
}

/**
 * Since a worker last asked, the head was held by the cause that the worker found, and from the head's slot on by the
 * lack of a worker.
 * @param meter the workers' notes in it (`lua/gate/held.lua`)
 */
export function heldAt(meter: Fields, queue: HeldQueue): Held {
  const hold = holdNow(queue.isWaiting ? foundHold(meter) : undefined, meter, queue)
  return {
    hold: hold && ofHead(hold, queue),
    wantedMs: hold?.cause === 'workers' ? queue.nowUs / 1000 - hold.since.getTime() : 0,
  }
}

/** A cause may have held earlier jobs. It has held the job at the head only since that job became ready. */
function ofHead(hold: Hold, { nowUs, headReadyUs = 0 }: HeldQueue): Hold {
  return { ...hold, since: date(Math.max(hold.since.getTime() * 1000, Math.min(headReadyUs, nowUs))) }
}

interface Found {
  readonly cause: HoldCause
  readonly limit: string | undefined
  readonly atUs: number
  readonly sinceUs: number
  readonly untilUs: number | undefined
}

/** The finding of the worker that asked last; undefined if nothing waited then. */
function foundHold(meter: Fields): Found | undefined {
  const [, name, limit] = /^([a-z]+)(?::(.*))?$/s.exec(meter.holds ?? '') ?? []
  const cause = HOLD_CAUSES.find((one) => one === name)
  if (cause === undefined || meter.heldAt === undefined) return undefined
  const atUs = Number(meter.heldAt)
  const untilUs = meter.holdsUntil ? Number(meter.holdsUntil) : undefined
  return { cause, limit, atUs, sinceUs: Number(meter.holdsSince ?? atUs), untilUs }
}

/** A pause holds from the moment it is set, whether or not a worker has asked since. */
function holdNow(found: Found | undefined, meter: Fields, queue: HeldQueue): Hold | undefined {
  const { nowUs, isWaiting, isPaused, pausedUntilUs, active } = queue
  if (!isWaiting) return undefined
  if (isPaused) {
    const sinceUs = found?.cause === 'pause' ? found.sinceUs : lookedUs(meter, queue)
    return { cause: 'pause', since: date(sinceUs), ...(pausedUntilUs ? { until: date(pausedUntilUs) } : {}) }
  }
  // No job runs, so the workers whose jobs took all places stopped without asking again.
  const areGone = found?.cause === 'concurrency' && active === 0
  if (!found || areGone) return { cause: 'workers', since: date(lookedUs(meter, queue)) }
  const { cause, limit, sinceUs, untilUs } = found
  // Workers that take jobs are busy: the next job lacks one since the last departure.
  if (cause === 'workers') return { cause, since: date(Math.min(nowUs, Math.max(sinceUs, departedUs(meter)))) }
  if (untilUs !== undefined && untilUs <= nowUs) return { cause: 'workers', since: date(untilUs) }
  const until = untilUs === undefined ? {} : { until: date(untilUs) }
  return { cause, ...(limit === undefined ? {} : { limit }), since: date(sinceUs), ...until }
}

/** The last departure, as far as known, µs. */
function departedUs({ leftAt, seen }: Fields): number {
  return Math.max(Number(leftAt ?? 0), Number(seen ?? 0))
}

/** Since when no worker has asked for the job that is now at the head. */
function lookedUs(meter: Fields, { nowUs, headReadyUs }: HeldQueue): number {
  return Math.min(nowUs, Math.max(Number(meter.heldAt ?? 0), headReadyUs ?? 0) || nowUs)
}

function date(us: number): Date {
  return new Date(us / 1000)
}

/** While a schedule lets nothing pass. */
export function closedOf(closed: StoredClosed | undefined): Pick<Hold, 'closed'> {
  return closed ? { closed: { until: date(Number(closed.ends)), timeZone: closed.zone } } : {}
}
