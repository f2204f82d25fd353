import { type DeadLetter, readDeadLetter } from '../backend/dead-letters.ts'
import type { JobRow } from '../inspect/index.ts'

/** A dead letter in a list. */
export interface DeadRow {
  /** The id of the letter's job, then the id of the job that failed. */
  readonly letterId: string
  readonly id: string
  readonly name: string
  readonly failedReason: string
  readonly attemptsMade: number
  readonly addedAt: Date
  readonly failedAt: Date
  /** How often it was redriven before. */
  readonly redriven: number
  /** Only where data is shown. */
  readonly data?: unknown
  readonly stacktrace?: readonly string[]
}

/** The letters of one queue among jobs: letters of other queues in the same dead letter queue are left out. */
export function deadRows(
  jobs: readonly JobRow[],
  of: { readonly prefix: string; readonly queueName: string },
  showData: boolean,
): DeadRow[] {
  return jobs.flatMap((job) => {
    const letter = letterOf(job.data)
    if (letter?.queueName !== of.queueName || letter.prefix !== of.prefix) return []
    return [deadRow(job.id, letter, showData)]
  })
}

function deadRow(letterId: string, letter: DeadLetter, showData: boolean): DeadRow {
  const { id, name, failedReason, attemptsMade, redriven, data, stacktrace } = letter
  return {
    ...{ letterId, id, name, failedReason, attemptsMade, redriven },
    addedAt: new Date(letter.timestamp),
    failedAt: new Date(letter.finishedOn),
    ...(showData && { data, stacktrace }),
  }
}

function letterOf(data: unknown): DeadLetter | undefined {
  return typeof data === 'object' && data !== null ? readDeadLetter(JSON.stringify(data)) : undefined
}
