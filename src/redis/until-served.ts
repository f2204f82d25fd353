import { setTimeout as sleep } from 'node:timers/promises'
import { isPassing } from './failures.ts'

/** ms. The wait between two tries doubles. */
const FIRST_WAIT_MS = 50
const LONGEST_WAIT_MS = 1000

/**
 * Goes on with a call that Redis did not serve, until it answers: `BUSY`, `READONLY`, `LOADING` and the like are over some
 * time, and what has happened already has to be stored.
 * @param refused why the first try failed; what is not over by itself is thrown at once
 * @param over whether nobody waits for it any more
 */
export async function untilServed<T>(refused: unknown, run: () => Promise<T>, over: () => boolean): Promise<T> {
  let error = refused
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
    if (!(error instanceof Error && isPassing(error)) || over()) throw error
    await sleep(waitMs)
    try {
      return await run()
    } catch (again) {
      error = again
    }
  }
}
