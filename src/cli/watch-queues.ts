import type { Inspector } from '../inspect/inspector.ts'
import type { QueueStatus } from '../inspect/queue-status.ts'
import { type Flow, flowBetween, type Totals } from './flow.ts'

/** A queue at one look, and its flow since the previous look. */
export type QueueFlow = QueueStatus & Flow

/** How often the list of queues, and which of them are fullest, is read again. */
const NAMES_FOR_MS = 5000

/** Looks at queues repeatedly; if there are too many, at the fullest. */
export class QueueWatch {
  readonly #inspector: Inspector
  readonly #name: string | undefined
  readonly #limit: number
  #names: readonly string[] = []
  #total = 0
  #namesReadMs = Number.NEGATIVE_INFINITY
  #before = new Map<string, Totals>()

  /**
   * @param name the only queue to look at; undefined: all
   * @param limit maximum number of queues: the fullest
   */
  constructor(inspector: Inspector, name: string | undefined, limit: number) {
    this.#inspector = inspector
    this.#name = name
    this.#limit = limit
  }

  /** How many queues there are, looked at or not. */
  get total(): number {
    return this.#total
  }

  /** Queues that no longer exist are left out. */
  async look(): Promise<QueueFlow[]> {
    await this.#readNames()
    const found = (await this.#inspector.status(this.#names)).filter((status) => status !== undefined)
    const flows = found.map((status) => ({ ...status, ...flowBetween(this.#before.get(status.name), status) }))
    this.#before = new Map(found.map((status) => [status.name, status]))
    return flows
  }

  async #readNames(): Promise<void> {
    if (this.#name !== undefined) {
      this.#names = [this.#name]
      this.#total = 1
      return
    }
    if (performance.now() - this.#namesReadMs < NAMES_FOR_MS) return
    const names = await this.#inspector.queues()
    this.#total = names.length
    // Sorted by name: rows that change places are hard to read.
    const isCut = names.length > this.#limit
    this.#names = isCut ? (await this.#inspector.fullest(names, this.#limit)).sort() : names
    this.#namesReadMs = performance.now()
  }
}
