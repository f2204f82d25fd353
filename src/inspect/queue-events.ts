import type { Answer, Batch } from './batch.ts'
import type { PauseMark } from './pauses.ts'
import { type StreamReply, streamEntries } from './stream.ts'

/** BullMQ's events since a time; it keeps about 10,000. */
export class QueueEventsReading {
  readonly #events: Answer<StreamReply>

  /** @param sinceMs on Redis's clock */
  constructor(base: string, sinceMs: number, batch: Batch) {
    this.#events = batch.add('xrange', `${base}events`, Math.max(0, Math.floor(sinceMs)), '+')
  }

  /** When BullMQ's pause was set and lifted, oldest first. */
  switches(): PauseMark[] {
    return streamEntries(this.#events()).flatMap(({ atMs, fields: { event } }) =>
      event === 'paused' || event === 'resumed' ? [{ atMs, paused: event === 'paused' }] : [],
    )
  }

  /** When a job was last added to the waiting jobs, up to a time. ms */
  waitingSince(jobId: string, untilMs: number): number | undefined {
    const went = streamEntries(this.#events()).findLast(
      ({ atMs, fields }) => fields.event === 'waiting' && fields.jobId === jobId && atMs <= untilMs,
    )
    return went?.atMs
  }
}
