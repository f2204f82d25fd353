import { setTimeout as sleep } from 'node:timers/promises'
import { onTestFinished } from './concurrent.ts'

const STEP_MS = 10
/** A step that takes longer than this was kept waiting. */
const MOST_MS = 50

/**
 * Measures what of the time this process, and a server if one is given, were running. A busy machine that stops either
 * of them for seconds adds next to nothing, so that a bound on how long something takes can be as tight as it is meant.
 */
export class RunningTime {
  #ms = 0
  #stepMs = performance.now()
  #isOver = false

  /** @param server answers at once while it runs; on a connection of its own, or one that nothing else keeps waiting */
  constructor(server?: { ping(): Promise<unknown> }) {
    onTestFinished(() => {
      this.#isOver = true
    })
    void this.#run(server)
  }

  /** So far. */
  get ms(): number {
    return this.#ms + this.#sinceStep()
  }

  #sinceStep(): number {
    return Math.min(performance.now() - this.#stepMs, MOST_MS)
  }

  async #run(server?: { ping(): Promise<unknown> }): Promise<void> {
    while (!this.#isOver) {
      await sleep(STEP_MS)
      await server?.ping().catch(() => {})
      this.#ms += this.#sinceStep()
      this.#stepMs = performance.now()
    }
  }
}
