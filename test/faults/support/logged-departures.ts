import { existsSync, readFileSync } from 'node:fs'

/** A start that `programs/logging-worker.ts` has written down. */
export interface LoggedDeparture {
  readonly departureTimeUs: number
  readonly jobId: string
}

/** All starts in a log, in the order of their lines; a worker that was killed may have left half a line. */
export function loggedDepartures(log: string): LoggedDeparture[] {
  if (!existsSync(log)) return []
  const lines = readFileSync(log, 'utf8').split('\n').slice(0, -1)
  return lines.map((line) => {
    const [departureTimeUs, jobId = ''] = line.split(' ')
    return { departureTimeUs: Number(departureTimeUs), jobId }
  })
}
