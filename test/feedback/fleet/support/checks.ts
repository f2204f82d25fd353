import { expect } from 'vitest'
import type { SeenRequest } from './limited-server.ts'
import type { Run } from './run.ts'

/** How far ahead the queues of these tests grant slots, ms: more than by default, so that there is more to be given back. */
export const HORIZON_MS = 100
/** Times of changes are whole ms, rounded up at the end of a pause; those of slots are µs. */
const ROUNDING_MS = 1

const slotMs = ({ slotUs }: { readonly slotUs: number }) => slotUs / 1000

/** No slot lies in a pause but those that were granted before it was stored, which reach one horizon ahead. */
export function expectPausesKept(run: Run): void {
  for (const { atMs, untilMs, change } of run.pauses) {
    const granted = atMs + ROUNDING_MS + HORIZON_MS
    const broken = run.starts.filter((start) => slotMs(start) > granted && slotMs(start) < untilMs - ROUNDING_MS)
    expect(broken, `slots in the pause of ${change.reason}, ${atMs} to ${untilMs}`).toEqual([])
  }
}

/** A pause lasts so long where the other side names no time, ms. */
const UNTIMED_MS = 1000

/**
 * Nothing reaches the server before the time that a refusal gave, but what had left before the fleet knew of it: the job
 * that was refused never. Where no time was given there is a second.
 */
export function expectTimesKept(requests: readonly SeenRequest[], { starts, pauses }: Run): void {
  for (const { jobId, slotUs, allowed, answeredMs, notBeforeMs } of requests) {
    if (allowed) continue
    const again = starts.find((start) => start.jobId === jobId && start.slotUs > slotUs)!
    const heard = pauses.filter(({ atMs }) => atMs <= slotMs(again))
    if (notBeforeMs === undefined) {
      expect(heard.map(({ atMs, untilMs }) => untilMs - atMs >= UNTIMED_MS)).not.toContain(false)
      continue
    }
    expect(slotMs(again)).toBeGreaterThanOrEqual(notBeforeMs - ROUNDING_MS)
    const known = heard.find(({ untilMs }) => untilMs + ROUNDING_MS >= notBeforeMs)
    // Refused again while others went well, a job waits by itself.
    if (!known && requests.some((one) => one.jobId === jobId && !one.allowed && one.slotUs < slotUs)) continue
    expect(known, `a pause until ${notBeforeMs}, as the server said`).toBeDefined()
    const granted = Math.max(answeredMs, known!.atMs) + ROUNDING_MS + HORIZON_MS
    const early = requests.filter((one) => one.arrivedMs < notBeforeMs && slotMs(one) > granted)
    expect(early, `requests before ${notBeforeMs}`).toEqual([])
  }
}

/** Every job was let in once, and ended well at its first attempt. */
export function expectOnce(jobIds: readonly string[], requests: readonly SeenRequest[], { ends, errors }: Run): void {
  const accepted = requests.filter(({ allowed }) => allowed).map(({ jobId }) => jobId)
  expect(accepted.toSorted()).toEqual(jobIds.toSorted())
  expect(ends.filter(({ failedReason, attemptsMade }) => failedReason || attemptsMade !== 1)).toEqual([])
  expect(ends.map(({ jobId }) => jobId).toSorted()).toEqual(jobIds.toSorted())
  expect(errors).toEqual([])
}
