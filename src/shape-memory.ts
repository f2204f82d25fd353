import { StoredShape } from './stored-shape.ts'

/**
 * What one process knows of a queue's shape. Its identity goes with every call, so that Redis can tell when it lost
 * something; the shape itself is what is put back then.
 */
export class ShapeMemory {
  #stored: StoredShape | undefined
  readonly #onChange: (shape: StoredShape, before: StoredShape | undefined) => void

  constructor(onChange: (shape: StoredShape, before: StoredShape | undefined) => void = () => {}) {
    this.#onChange = onChange
  }

  get stored(): StoredShape | undefined {
    return this.#stored
  }

  /** The two arguments that scripts take first; both '' where nothing is known. */
  get identity(): [born: string, rev: string] {
    return this.#stored ? [this.#stored.born, this.#stored.rev] : ['', '']
  }

  /** The same as one argument, for the scripts that run most. */
  get identityText(): string {
    return this.#stored?.identity ?? ''
  }

  /** Takes in a shape that Redis answered with, if there is one. */
  learn(flat: readonly string[] | null | undefined): void {
    if (!flat || flat.length === 0) return
    const before = this.#stored
    const shape = new StoredShape(flat)
    if (before && before.born === shape.born && Number(before.rev) >= Number(shape.rev)) return
    this.#stored = shape
    this.#onChange(shape, before)
  }

  /** After the queue was obliterated on purpose: nothing is to be put back. */
  forget(): void {
    this.#stored = undefined
  }
}
