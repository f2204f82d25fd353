import { createHash } from 'node:crypto'

/** The parts that make a job's effect on the outside world unique. */
export interface EffectIdentity {
  /** Redis key prefix of the queue (BullMQ's `prefix`). */
  readonly prefix: string
  readonly queueName: string
  readonly jobId: string
  /** The job's creation time in milliseconds since the epoch (`job.timestamp`). */
  readonly timestamp: number
}

/**
 * The identity of a job's effect, for sinks that can recognise a second delivery: a ledger row, a Message-ID, an
 * Idempotency-Key.
 *
 * BullMQ's own ids start again at 1 once a queue is wiped, so the job's creation time is part of the identity. Retries,
 * recovery of a stalled job and a later redrive keep id and timestamp, and therefore keep the identity.
 *
 * @returns 64 lower-case hexadecimal digits (SHA-256).
 */
export function effectId({ prefix, queueName, jobId, timestamp }: EffectIdentity): string {
  // JSON separates the parts unambiguously: ('a', 'b:c') and ('a:b', 'c') must not collide.
  return createHash('sha256')
    .update(JSON.stringify([prefix, queueName, jobId, timestamp]))
    .digest('hex')
}
