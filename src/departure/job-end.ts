import type { Argument } from '../redis/commands.ts'

/** A job that ended, and how BullMQ's code ends it. */
export interface JobEnd {
  readonly id: string
  readonly token: string
  /** Whether it fetches the next job. */
  readonly fetches: boolean
  /** Whether the job runs again later. */
  readonly isPostponed: boolean
  /** The arguments for `lua/verbs/exchange.lua`. */
  readonly fields: readonly Argument[]
}

/** Number of characters in its result, which is stored in the job and in an event. */
export function resultLength({ fields }: JobEnd): number {
  return String(fields[2]).length
}

/**
 * A call of BullMQ's moveToFinished.
 * @param args after its keys
 * @param discarded whether the job is not kept
 */
export function finishedEnd(args: readonly Argument[], token: string, discarded: boolean): JobEnd {
  const [id, timestamp, field, result, target, fetch, , options, updates] = args
  const fetches = String(fetch) === '1'
  const kind = `${target} ${field} ${discarded ? 1 : 0} ${fetches ? 1 : 0}`
  const fields = [id, timestamp, result, options, updates, kind]
  return { id: id as string, token, fetches, isPostponed: false, fields }
}

/**
 * A call of BullMQ's moveToDelayed.
 * @param args after its keys
 */
export function postponedEnd(args: readonly Argument[]): JobEnd {
  const [, timestamp, id, token, delayMs, skipsAttempt, updates, fetch, options] = args
  const fetches = String(fetch) === '1'
  const fields = [id, timestamp, delayMs, options ?? token, updates, `delayed ${skipsAttempt} 0 ${fetches ? 1 : 0}`]
  return { id: id as string, token: token as string, fetches, isPostponed: true, fields }
}
