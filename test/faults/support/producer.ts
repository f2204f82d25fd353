import { setTimeout as sleep } from 'node:timers/promises'
import type { ShapedQueue } from '../../../src/index.ts'
import { RunningTime } from '../../support/running-time.ts'

/** A job that was not accepted. */
export interface Refused {
  readonly jobId: string
  readonly error: unknown
  /** Of the time that this process was running. */
  readonly afterMs: number
}

/** Adds one job after another until it is stopped; tells apart what was accepted and what was not. */
export class Producer {
  readonly accepted: string[] = []
  /** When each of them was, on this process's clock. */
  readonly acceptedMs: number[] = []
  readonly refused: Refused[] = []
  /** Resolves once a job was refused. */
  readonly firstRefusal: Promise<void>
  #noteRefusal: () => void = () => {}
  #stopped = false
  #done: Promise<void>

  /**
   * @param everyMs how long it rests after each answer
   * @param name its jobs have the ids `name0`, `name1` and so on
   */
  constructor(queue: ShapedQueue, { everyMs = 0, name = 'j' } = {}) {
    this.firstRefusal = new Promise((resolve) => {
      this.#noteRefusal = resolve
    })
    this.#done = this.#run(queue, everyMs, name)
  }

  async stop(): Promise<void> {
    this.#stopped = true
    await this.#done
  }

  async #run(queue: ShapedQueue, everyMs: number, name: string): Promise<void> {
    const running = new RunningTime()
    for (let n = 0; !this.#stopped; n++) {
      const jobId = `${name}${n}`
      const begunMs = running.ms
      const refusal = await queue.add('job', {}, { jobId }).then(
        () => undefined,
        (error: unknown) => ({ jobId, error, afterMs: running.ms - begunMs }),
      )
      if (refusal) {
        this.refused.push(refusal)
        this.#noteRefusal()
      } else {
        this.accepted.push(jobId)
        this.acceptedMs.push(performance.now())
      }
      await sleep(everyMs)
    }
  }
}
