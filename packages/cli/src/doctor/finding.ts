/**
 * How bad a finding is. `note`: out of the ordinary, but meant to be so. `skipped`: the check could not run; the finding
 * says what it needs.
 */
export type Level = 'ok' | 'note' | 'warning' | 'error' | 'skipped'

export interface Finding {
  /** The check's name, such as `eviction`. */
  readonly check: string
  readonly level: Level
  /** The queue; undefined for a finding about the server or this process. */
  readonly queue?: string
  /** One sentence that states the fact. */
  readonly message: string
  /** What to do about it; '' if nothing needs to be done. */
  readonly remedy: string
}

export class Findings {
  readonly #check: string
  readonly #queue: string | undefined

  constructor(check: string, queue?: string) {
    this.#check = check
    this.#queue = queue
  }

  ok(message: string): Finding {
    return this.#of('ok', message, '')
  }

  note(message: string, remedy: string): Finding {
    return this.#of('note', message, remedy)
  }

  warning(message: string, remedy: string): Finding {
    return this.#of('warning', message, remedy)
  }

  error(message: string, remedy: string): Finding {
    return this.#of('error', message, remedy)
  }

  skipped(message: string, remedy: string): Finding {
    return this.#of('skipped', message, remedy)
  }

  #of(level: Level, message: string, remedy: string): Finding {
    const queue = this.#queue === undefined ? {} : { queue: this.#queue }
    return { check: this.#check, level, ...queue, message, remedy }
  }
}
