import { createHash } from 'node:crypto'
import type { RefusedTarget } from './request.ts'

const MOST = 100
const ID_LENGTH = 16

/** Last successes of the last 100 targets of one worker: they show whether only one of the targets is refused. */
export class CallTargets {
  /** Departure (µs) of the last successful call; the target with the most recent success comes last. */
  readonly #wentWellUs = new Map<string, number>()

  wentWell(target: string | undefined, sentUs: number): void {
    if (target === undefined) return
    const before = this.#wentWellUs.get(target) ?? 0
    this.#wentWellUs.delete(target)
    this.#wentWellUs.set(target, Math.max(before, sentUs))
    if (this.#wentWellUs.size <= MOST) return
    const [oldest] = this.#wentWellUs.keys()
    this.#wentWellUs.delete(oldest as string)
  }

  /** The target's id is a hash, because targets may contain secrets. */
  refused(target: string | undefined): RefusedTarget | undefined {
    if (target === undefined) return undefined
    const others = [...this.#wentWellUs].flatMap(([name, sentUs]) => (name === target ? [] : sentUs))
    return {
      id: createHash('sha256').update(target).digest('base64url').slice(0, ID_LENGTH),
      sameUs: this.#wentWellUs.get(target),
      othersUs: others.length > 0 ? Math.max(...others) : undefined,
    }
  }
}
