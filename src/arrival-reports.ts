import type { ShapeStore } from './shape-store.ts'

/** So often a program that adds jobs sees to it that the series of the queue goes on: its workers may be paused, or gone. ms. */
const REPORT_MS = 15_000

/** Where jobs come in and none leaves, those who add them tell of the queue. Nothing depends on it. */
export class ArrivalReports {
  readonly #store: Pick<ShapeStore, 'memory' | 'run'>
  #toldMs = performance.now()

  constructor(store: Pick<ShapeStore, 'memory' | 'run'>) {
    this.#store = store
  }

  /** Jobs were added. */
  noted(): void {
    const nowMs = performance.now()
    if (nowMs - this.#toldMs < REPORT_MS || !this.#store.memory.stored) return
    this.#toldMs = nowMs
    this.#store.run('report', ['', '', '{}', 0, '']).catch(() => undefined)
  }
}
