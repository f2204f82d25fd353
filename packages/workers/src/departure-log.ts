import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import { effectId } from 'sluice/internal'

/** A departure, one line of the log. */
export interface DepartureRecord {
  readonly queue: string
  readonly jobId: string
  /** The identity of the job's effect: the local part of its Message-ID, the key of its ledger row. */
  readonly effectId: string
  /** The slot, in microseconds on Redis's clock. */
  readonly departureTimeUs: number
  /** When the job actually started, in microseconds on Redis's clock. */
  readonly departedAtUs: number
  readonly latenessUs: number
  /** 1 for the first start, 2 for the first retry, and so on. */
  readonly attempt: number
  readonly pid: number
}

export interface DepartedJob {
  readonly id?: string | undefined
  readonly queueName: string
  readonly timestamp: number
  readonly attemptsStarted: number
}

export interface LoggedDeparture {
  readonly departureTimeUs: number
  readonly departedAtUs: number
  readonly latenessUs: number
}

export interface DepartureLog {
  record(job: DepartedJob, departure: LoggedDeparture): void
  close(): void
}

/**
 * Appends one line of JSON for each departure to a file, which is created if it is missing. Each line is one
 * synchronous write, so several processes may share a file and a killed process loses none.
 * @throws Error of the file system when the file cannot be opened.
 */
export function openDepartureLog(path: string, prefix: string): DepartureLog {
  mkdirSync(dirname(path), { recursive: true })
  const file = openSync(path, 'a')
  return {
    record(job, { departureTimeUs, departedAtUs, latenessUs }) {
      const jobId = job.id ?? ''
      const line: DepartureRecord = {
        queue: job.queueName,
        jobId,
        effectId: effectId({ prefix, queueName: job.queueName, jobId, timestamp: job.timestamp }),
        departureTimeUs,
        departedAtUs,
        latenessUs,
        attempt: job.attemptsStarted,
        pid: process.pid,
      }
      writeSync(file, `${JSON.stringify(line)}\n`)
    },
    close() {
      closeSync(file)
    },
  }
}
