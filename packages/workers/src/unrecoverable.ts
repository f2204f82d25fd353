import { UnrecoverableError } from 'bullmq'

/** Wraps a typed error so that BullMQ fails the job at once instead of retrying it; the error is kept as `cause`. */
export function unrecoverable(cause: Error): UnrecoverableError {
  const error = new UnrecoverableError(cause.message)
  error.cause = cause
  return error
}
