import { plainText } from '../plain-text.ts'
import type { QueueLimit } from './queue-limits.ts'

/**
 * Data seen by this process, by the names of limits. More names than this come from outside, such as one per tenant.
 */
const MOST_NAMES = 1000
const limiters = new Set<string>()
const unshared = new Map<string, { readonly queueName: string }>()
const warned = new Set<string>()

/** A limiter of this name is in use here. */
export function noteLimiter(name: string): void {
  if (limiters.size < MOST_NAMES) limiters.add(name)
  warn(name)
}

/** The limits of a queue that is used here. */
export function noteQueueLimits(queueName: string, limits: readonly QueueLimit[] = []): void {
  for (const { name, shared = false } of limits) {
    if (shared || unshared.size >= MOST_NAMES) continue
    unshared.set(name, { queueName })
    warn(name)
  }
}

/** Once per name: each counts only its own units, so together they let twice as much pass. */
function warn(name: string): void {
  const limit = unshared.get(name)
  if (!limit || !limiters.has(name) || warned.has(name)) return
  warned.add(name)
  process.emitWarning(
    plainText(
      `limit "${name}": the limiter and the limit of queue "${limit.queueName}" have one name, but do not share what they ` +
        `count: set shared: true in shape.limits, or give one of them another name`,
    ),
    { code: 'SLUICE_LIMIT_NOT_SHARED' },
  )
}
