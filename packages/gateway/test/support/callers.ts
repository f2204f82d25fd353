import { setTimeout as sleep } from 'node:timers/promises'
import { quantile } from '../../../../bench/harness/statistics.ts'
import { post } from '../program/support.ts'

export interface Seen {
  readonly statuses: readonly number[]
  readonly timesMs: readonly number[]
  readonly p50Ms: number
  readonly p99Ms: number
}

/** Callers who do nothing wrong. */
export interface Callers {
  /** @returns what they were answered, and how long it took. ms */
  stop(): Promise<Seen>
}

/**
 * Lets callers post jobs, each after the other, with a pause between them.
 * @param address that a trusted proxy would name as theirs; without one it is that of the connection
 */
export function startCallers(
  url: string,
  { count = 4, everyMs = 20, address }: { count?: number; everyMs?: number; address?: string } = {},
): Callers {
  const headers = address === undefined ? {} : { 'x-forwarded-for': address }
  const stop = new AbortController()
  const statuses: number[] = []
  const times: number[] = []
  const call = async () => {
    while (!stop.signal.aborted) {
      const startedAt = performance.now()
      const response = await post(url, 'jobs', 'good', headers)
      await response.arrayBuffer()
      times.push(performance.now() - startedAt)
      statuses.push(response.status)
      await sleep(everyMs)
    }
  }
  const calls = Promise.all(Array.from({ length: count }, call))
  // Told by `stop`; a test that failed before does not ask.
  calls.catch(() => {})
  return {
    async stop() {
      stop.abort()
      await calls
      return { statuses, timesMs: times, p50Ms: quantile(times, 0.5), p99Ms: quantile(times, 0.99) }
    },
  }
}
