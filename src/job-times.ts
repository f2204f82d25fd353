/** Weight of a new observation. */
const WEIGHT = 1 / 16

/** A mean that follows what is observed. */
export class MovingMean {
  #mean: number | undefined

  get value(): number | undefined {
    return this.#mean
  }

  add(value: number): void {
    this.#mean = this.#mean === undefined ? value : this.#mean + (value - this.#mean) * WEIGHT
  }
}
