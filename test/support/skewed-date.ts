import { onTestFinished } from 'vitest'

/** The clock of this process, which a test can offset from the true one. */
export class SkewedDate {
  #aheadMs = 0

  constructor() {
    const TrueDate = Date
    const nowMs = () => TrueDate.now() + this.#aheadMs
    globalThis.Date = new Proxy(TrueDate, {
      construct: (target, args) => (args.length > 0 ? Reflect.construct(target, args) : new target(nowMs())),
      get: (target, key) => (key === 'now' ? nowMs : Reflect.get(target, key)),
    })
    onTestFinished(() => {
      globalThis.Date = TrueDate
    })
  }

  /** From now on, every reading of the clock is ahead by this much; negative: behind. */
  set(aheadMs: number): void {
    this.#aheadMs = aheadMs
  }
}
