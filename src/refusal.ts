import { CannotStartInTimeError, QueueFullError, type Refusal } from './errors.ts'

/** Whether a job was refused for what else waits: the same job may be taken later. */
export function isRefusal(error: unknown): error is Error & Refusal {
  return error instanceof QueueFullError || error instanceof CannotStartInTimeError
}
