import { QueueUnavailableError, SluiceError } from '../errors.ts'
import { failureKind } from '../redis/failures.ts'
import type { AddCall } from './add-call.ts'

/** At most this many jobs, and bytes of them, are added by one script, except for those of an idempotency key. */
export const BULK_JOBS = 100
const BULK_BYTES = 512 * 1024
/** Jobs of one idempotency key, which are added by one script. */
export const ONCE_JOBS = 200
/** Jobs per script of a larger bulk: a part blocks Redis for less than 5 ms, in groups too. */
const PART_JOBS = 50
/** Jobs added together are sent in this many parts, so that Redis works on one while the program prepares the next. */
export const IN_FLIGHT = 4

/** Cuts a bulk into parts of one script each, in order. A job larger than a part is one by itself. */
export function partsOf(calls: readonly AddCall[]): AddCall[][] {
  const most = calls.length > BULK_JOBS ? PART_JOBS : BULK_JOBS
  const parts: AddCall[][] = []
  let part: AddCall[] = []
  let bytes = 0
  for (const call of calls) {
    const more = bytesOf(call)
    if (part.length > 0 && (part.length === most || bytes + more > BULK_BYTES)) {
      parts.push(part)
      part = []
      bytes = 0
    }
    part.push(call)
    bytes += more
  }
  parts.push(part)
  return parts
}

/** Size of the job in BullMQ's add script: its own arguments, the data and the options. */
function bytesOf({ args }: AddCall): number {
  let bytes = 0
  for (let i = args.length - 3; i < args.length; i++) bytes += Buffer.byteLength(args[i] as string | Buffer)
  return bytes
}

/**
 * Results for the jobs of a bulk in parts with a failed part: the id of each added job, undefined for one that was not
 * added, null if unknown.
 */
export function addedIdsOf(parts: readonly (readonly AddCall[])[], ends: readonly PromiseSettledResult<unknown[]>[]) {
  return parts.flatMap((part, i) => {
    const end = ends[i]
    if (end?.status === 'fulfilled') return end.value.map((reply) => (typeof reply === 'string' ? reply : undefined))
    return part.map(() => (!end || isRefused(end.reason as Error) ? undefined : null))
  })
}

/** Whether Redis, or a script, refused a part as a whole. */
function isRefused(error: Error): boolean {
  if (error instanceof SluiceError) return !(error instanceof QueueUnavailableError)
  return failureKind(error) === 'refused'
}
