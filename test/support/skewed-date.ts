import { onTestFinished } from 'vitest'

/** The clock of this process, which a test may set beside the true one for as long as it runs. */
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

  /** From now on every look at the clock finds it so much ahead; negative: behind. */
  set(aheadMs: number): void {
    this.#aheadMs = aheadMs
  }
}
