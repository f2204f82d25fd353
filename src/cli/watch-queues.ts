import type { Inspector } from '../inspect/inspector.ts'
import type { QueueStatus } from '../inspect/queue-status.ts'
import { type Flow, flowBetween, type Totals } from './flow.ts'

/** A queue at one look, and what flowed since the one before. */
export type QueueFlow = QueueStatus & Flow

/** Queues that are new, and those that became fuller than others, are found after so long. */
const NAMES_FOR_MS = 5000

/** Looks at queues again and again: of many, at the fullest. */
export class QueueWatch {
  readonly #inspector: Inspector
  readonly #name: string | undefined
  readonly #limit: number
  #names: readonly string[] = []
  #total = 0
  #namesReadMs = Number.NEGATIVE_INFINITY
  #before = new Map<string, Totals>()

  /**
   * @param name of the only queue to look at; undefined: all
   * @param limit at most so many queues: those to look at first
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

  /** Queues that are gone are left out. */
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
    // In the order of their names: rows that change places can not be read.
    const isCut = names.length > this.#limit
    this.#names = isCut ? (await this.#inspector.fullest(names, this.#limit)).sort() : names
    this.#namesReadMs = performance.now()
  }
}
