/** A message to the workers of a queue: a run that one of them may have is to be aborted. See lua/ends/cancelled.lua. */
export interface CancelMessage {
  /** Of the job. */
  readonly id: string
  /** Of the lock of the run; '' if the job has none. */
  readonly token: string
  /** What the job fails with. */
  readonly failure: string
}

const PREFIX = 'cancel:'
const FAILURE = /^cancelled(?: by [^\n]{1,200}?)?: /

/** What a cancelled job fails with, as Redis keeps it. */
export function cancelFailure(reason: string, by = ''): string {
  return by === '' ? `cancelled: ${reason}` : `cancelled by ${by}: ${reason}`
}

/** @param failure what Redis has marked a job to fail with */
export function isCancelFailure(failure: string | null | undefined): failure is string {
  return FAILURE.test(failure ?? '')
}

/** undefined for any other message of the channel. */
export function readCancelMessage(message: string): CancelMessage | undefined {
  return message.startsWith(PREFIX) ? (JSON.parse(message.slice(PREFIX.length)) as CancelMessage) : undefined
}
