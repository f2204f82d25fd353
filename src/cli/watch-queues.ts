import type { Inspector } from '../inspect/inspector.ts'
import type { QueueStatus } from '../inspect/queue-status.ts'
import { type Flow, flowBetween } from './flow.ts'

/** A queue at one look, and what flowed since the one before. */
export type QueueFlow = QueueStatus & Flow

/** Queues that are new are found after so long. */
const NAMES_FOR_MS = 5000

/** Looks at queues again and again: all of them in one call. */
export class QueueWatch {
  readonly #inspector: Inspector
  readonly #name: string | undefined
  #names: readonly string[] = []
  #namesReadMs = Number.NEGATIVE_INFINITY
  #before = new Map<string, QueueStatus>()

  /** @param name of the only queue to look at; undefined: all */
  constructor(inspector: Inspector, name: string | undefined) {
    this.#inspector = inspector
    this.#name = name
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
      return
    }
    if (performance.now() - this.#namesReadMs < NAMES_FOR_MS) return
    this.#names = await this.#inspector.queues()
    this.#namesReadMs = performance.now()
  }
}
