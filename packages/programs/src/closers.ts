/** Closes what was opened, in reverse order. */
export class Closers {
  readonly #closers: (() => void | Promise<void>)[] = []

  push(close: () => void | Promise<void>): void {
    this.#closers.push(close)
  }

  /**
   * Closes everything, the last opened first. If one fails, the others are still closed.
   * @throws the first error, or an AggregateError of several.
   */
  async closeAll(): Promise<void> {
    const errors: unknown[] = []
    for (let close = this.#closers.pop(); close; close = this.#closers.pop()) {
      try {
        await close()
      } catch (error) {
        errors.push(error)
      }
    }
    if (errors.length > 1) throw new AggregateError(errors, 'several things could not be closed')
    if (errors.length === 1) throw errors[0]
  }
}
