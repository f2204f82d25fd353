import { isNotConnectionError } from 'bullmq'
import type { ShapedBackend } from '../backend/backend.ts'

/** s. BullMQ replaces the blocking connection one second after the wait should have ended. */
const LONGEST_WAIT_S = 10

/** What the wait needs of its worker. */
export interface MarkerWaiter {
  readonly backend: ShapedBackend
  /** s; 0 or less means no wait. */
  timeoutS(untilMs: number): number
  /** Whether the worker fetches nothing for now. */
  paused(): boolean
  /** Whether it has no place left. */
  full(): boolean
  closing(): boolean
  /** BullMQ's delay after a failed wait. */
  delay(): Promise<void>
  /** Hands on a marker that this worker cannot use. */
  passOn(): Promise<void>
  onError(error: Error): void
}

/**
 * BullMQ's blocking wait for its marker, with its recovery.
 * @param untilMs when the next delayed job is due, 0 if there is none
 * @returns when to ask for jobs, ms; 0 for now; undefined if no marker came
 */
export async function waitForMarker(waiter: MarkerWaiter, untilMs: number): Promise<number | undefined> {
  const timeoutS = Math.min(LONGEST_WAIT_S, waiter.timeoutS(untilMs))
  if (timeoutS <= 0) return 0
  try {
    const marker = await waiter.backend.waitForJob(timeoutS)
    if (!marker) return undefined
    // Paused or filled during the wait: another worker must get the marker.
    if (waiter.paused() || waiter.full()) await waiter.passOn()
    return untilMs && marker.score > untilMs ? untilMs : marker.score
  } catch (error) {
    report(waiter, error as Error)
  }
  if (waiter.closing() || waiter.paused()) return 0
  await waiter.backend.reconnectBlocking().catch((error: Error) => report(waiter, error))
  if (!waiter.closing()) await waiter.delay()
  return 0
}

function report(waiter: MarkerWaiter, error: Error): void {
  if (isNotConnectionError(error)) waiter.onError(error)
}
