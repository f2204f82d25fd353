import { QueueUnavailableError, ShardsUnavailableError } from '../errors.ts'
import { orLate } from '../redis/deadlines.ts'
import { failureKind } from '../redis/failures.ts'

/**
 * Waits for a change in each shard. A failing shard does not keep the others from the change.
 * @param timeoutMs when a shard counts as unavailable; undefined: the change has a limit of its own
 * @throws ShardsUnavailableError if shards are unavailable; any other error of a shard, which all of them may have
 */
export async function inAllShards(queueName: string, changes: readonly Promise<unknown>[], timeoutMs?: number) {
  const ends = await Promise.allSettled(
    changes.map((change) => (timeoutMs === undefined ? change : answered(queueName, change, timeoutMs))),
  )
  const errors = ends.map((end) => (end.status === 'rejected' ? (end.reason as Error) : undefined))
  const [cause] = errors.filter((error) => error !== undefined)
  if (!cause) return
  const other = errors.find((error) => error && !isUnavailable(error))
  if (other) throw other
  const shardsWith = (failed: boolean) =>
    errors.flatMap((error, shard) => ((error !== undefined) === failed ? [shard] : []))
  throw new ShardsUnavailableError(queueName, shardsWith(false), shardsWith(true), { cause })
}

function isUnavailable(error: Error): boolean {
  return error instanceof QueueUnavailableError || failureKind(error) !== undefined
}

interface WaitTerms {
  /** Whether the change may still happen after the timeout. Default true. */
  readonly mayChange?: boolean
  /** What is missing, and why, once it is late. */
  readonly missing?: () => Missing
}

interface Missing {
  readonly text?: string | undefined
  readonly cause?: Error | undefined
}

/**
 * The result of a promise.
 * @throws QueueUnavailableError if it takes longer
 */
export function answered<T>(
  queueName: string,
  promise: Promise<T>,
  timeoutMs: number,
  { mayChange = true, missing = () => ({}) }: WaitTerms = {},
): Promise<T> {
  return orLate(timeoutMs, promise, () => {
    const { text = 'Redis did not answer', cause } = missing()
    const reason = `${text} within ${timeoutMs} ms${cause ? ` (${cause.message})` : ''}`
    return new QueueUnavailableError(queueName, reason, mayChange, cause && { cause })
  })
}
