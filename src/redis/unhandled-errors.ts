import { plainText } from '../plain-text.ts'
import { failureKind } from './failures.ts'

/** So that an outage that lasts is not forgotten. */
const AGAIN_MS = 60_000

/** When each failure was last told, by its text. */
const toldAtMs = new Map<string, number>()

/**
 * Handles an `error` event that no one listens to: each connection of each queue and worker emits one for each attempt to
 * connect, and BullMQ prints the stack of all. Failed connections become one warning a minute for the whole process, in one
 * line; other errors are printed as they are, as BullMQ does.
 * @returns that no one listened, as `emit` does
 */
export function warnUnhandled(error: unknown): false {
  const text = textOf(error)
  if (failureKind(new Error(text)) !== 'connection') {
    console.error(error)
    return false
  }
  const nowMs = performance.now()
  if (nowMs < (toldAtMs.get(text) ?? Number.NEGATIVE_INFINITY) + AGAIN_MS) return false
  toldAtMs.set(text, nowMs)
  const warning = `cannot use Redis: ${text}. Queues and workers try again by themselves; an 'error' listener replaces this warning`
  process.emitWarning(plainText(warning), { code: 'SLUICE_REDIS_AWAY' })
  return false
}

/** `localhost` has two addresses: the error of both has no text of its own. */
function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(textOf).join(', ')
  return error instanceof Error ? error.message.replace(/\.$/, '') : String(error)
}
