import { setTimeout as sleep } from 'node:timers/promises'
import { isMoving, isPassing } from './failures.ts'

/** ms. The wait between two attempts doubles. */
const FIRST_WAIT_MS = 50
const LONGEST_WAIT_MS = 1000
/** ms. ioredis itself repeats a call for about a second; most hash slots take less to move. */
const MOVE_MS = 3000

/**
 * Repeats a call that Redis did not serve until it answers: `BUSY`, `READONLY`, `LOADING` and the like are temporary,
 * and past events must be stored.
 * @param refused why the first attempt failed; a failure that is not temporary is thrown at once
 * @param over whether the result is no longer needed
 * @param onRefused called once, with that failure, if the call is repeated
 */
export async function untilServed<T>(
  refused: unknown,
  run: () => Promise<T>,
  over: () => boolean,
  onRefused: (error: Error) => void,
): Promise<T> {
  let error = refused
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
    if (!(error instanceof Error && isPassing(error)) || over()) throw error
    if (error === refused) onRefused(error)
    await sleep(waitMs)
    try {
      return await run()
    } catch (again) {
      error = again
    }
  }
}

/**
 * Repeats a call for a few seconds while the hash slot of its keys moves to another node of a cluster. Refused calls
 * have not run.
 */
export async function untilMoved<T>(run: () => Promise<T>): Promise<T> {
  const begunMs = performance.now()
  for (let waitMs = FIRST_WAIT_MS; ; waitMs *= 2) {
    try {
      return await run()
    } catch (error) {
      if (!(error instanceof Error && isMoving(error)) || performance.now() - begunMs + waitMs > MOVE_MS) throw error
    }
    await sleep(waitMs)
  }
}
