import { plainText } from '../plain-text.ts'
import { failureKind } from './failures.ts'

/** A lasting outage is warned about again after this time. */
const AGAIN_MS = 60_000

/** When each failure was last reported, by its text. */
const reportedAtMs = new Map<string, number>()

/**
 * Handles an `error` event without a listener: each connection of each queue and worker emits one for each attempt to
 * connect, and BullMQ prints all stacks. Failed connections become one warning a minute for the whole process, in one
 * line; other errors are printed unchanged, as BullMQ does.
 * @returns that there was no listener, as `emit` does
 */
export function warnUnhandled(error: unknown): false {
  const text = textOf(error)
  if (failureKind(new Error(text)) !== 'connection') {
    console.error(error)
    return false
  }
  const nowMs = performance.now()
  if (nowMs < (reportedAtMs.get(text) ?? Number.NEGATIVE_INFINITY) + AGAIN_MS) return false
  reportedAtMs.set(text, nowMs)
  const warning = `cannot use Redis: ${text}. Queues and workers try again by themselves; an 'error' listener replaces this warning`
  process.emitWarning(plainText(warning), { code: 'SLUICE_REDIS_AWAY' })
  return false
}

/** `localhost` has two addresses: the error of both has no text of its own. */
function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(textOf).join(', ')
  return error instanceof Error ? error.message.replace(/\.$/, '') : String(error)
}
