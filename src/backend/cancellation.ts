/** A message to the workers of a queue: abort this run, if one of them has it. See lua/ends/cancelled.lua. */
export interface CancelMessage {
  /** The job's id. */
  readonly id: string
  /** The lock token of the run; '' if the job has none. */
  readonly token: string
  /** The failure reason of the job. */
  readonly failure: string
}

const PREFIX = 'cancel:'
const FAILURE = /^cancelled(?: by [^\n]{1,200}?)?: /

/** The failure reason of a cancelled job, as stored in Redis. */
export function cancelFailure(reason: string, by = ''): string {
  return by === '' ? `cancelled: ${reason}` : `cancelled by ${by}: ${reason}`
}

/** @param failure the deferred failure of a job in Redis */
export function isCancelFailure(failure: string | null | undefined): failure is string {
  return FAILURE.test(failure ?? '')
}

/** undefined for any other message of the channel. */
export function readCancelMessage(message: string): CancelMessage | undefined {
  return message.startsWith(PREFIX) ? (JSON.parse(message.slice(PREFIX.length)) as CancelMessage) : undefined
}
