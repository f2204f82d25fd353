import type { QueueFullError } from '../../errors.ts'
import type { Answer } from '../door.ts'
import type { Given } from '../responses/problem.ts'

/** How many answers with different jitter there are; more would cost more than they spread. */
const VARIANTS = 32

/** The answers to one remembered refusal, each built once: under overload they are most of the work. */
export class FullAnswers {
  #error: QueueFullError | undefined
  #instance: string | undefined
  #answers: (Answer | undefined)[] = []

  /** @param make builds one, with a random number drawn here */
  of(
    error: QueueFullError,
    instance: string | undefined,
    make: (given: Given) => Answer | undefined,
  ): Answer | undefined {
    if (error !== this.#error || instance !== this.#instance) {
      this.#error = error
      this.#instance = instance
      this.#answers = []
    }
    const variant = Math.floor(Math.random() * VARIANTS)
    this.#answers[variant] ??= make({ random: () => (variant + Math.random()) / VARIANTS })
    return this.#answers[variant]
  }
}
