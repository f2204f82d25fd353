import type { FinishedJob } from './departures.ts'
import type { Argument } from './redis-commands.ts'

/** BullMQ's moveToFinished: fourteen keys, then nine arguments. */
const KEYS = 14
const FETCH = KEYS + 5
/** Of its arguments: id, timestamp, field of the result, result, target set, options, fields to update. */
const FIELDS = [0, 1, 2, 3, 4, 7, 8]

interface Waiting {
  readonly job: FinishedJob
  readonly resolve: (code: number) => void
  readonly reject: (error: Error) => void
}

/** Collects the jobs that end in one turn of the event loop, so that one script finishes them all. */
export class FinishBatch {
  readonly #send: (jobs: readonly FinishedJob[]) => Promise<readonly (number | string)[]>
  #waiting: Waiting[] = []

  /** @param send finishes jobs: BullMQ's code for each, or the text of an error */
  constructor(send: (jobs: readonly FinishedJob[]) => Promise<readonly (number | string)[]>) {
    this.#send = send
  }

  /**
   * @param args those of BullMQ's moveToFinished
   * @param discarded whether the job is not kept
   * @param most send at once when so many are there
   * @returns BullMQ's code
   */
  add(args: readonly Argument[], discarded: boolean, most: number): Promise<number> {
    const fields = [...FIELDS.map((i) => args[KEYS + i]), discarded ? '1' : '0']
    const job = { fields, fetches: String(args[FETCH]) === '1' }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ job, resolve, reject })
      if (this.#waiting.length >= most) this.#flush()
      else if (this.#waiting.length === 1) setImmediate(() => this.#flush())
    })
  }

  async #flush(): Promise<void> {
    const batch = this.#waiting
    if (batch.length === 0) return
    this.#waiting = []
    try {
      const codes = await this.#send(batch.map(({ job }) => job))
      batch.forEach(({ resolve, reject }, i) => {
        const code = codes[i] as number | string
        if (typeof code === 'number') resolve(code)
        else reject(new Error(code))
      })
    } catch (error) {
      for (const { reject } of batch) reject(error as Error)
    }
  }
}
