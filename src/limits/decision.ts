import { switchKey } from './limit-keys.ts'

/** A limit in the form for scripts. */
export interface LimitRef {
  /** For messages only; scripts do not get it. */
  readonly name: string
  readonly control: string
  /** The rule of the limit, JSON. */
  readonly wire: string
}

/** One limit, for one key and one cost. */
export interface Part {
  readonly limit: LimitRef
  /** The key that holds the state. */
  readonly state: string
  readonly cost: number
  readonly lease?: string
}

/** A request for one decision: all parts are charged, or none. */
export interface Question {
  /** False charges nothing. */
  readonly takes: boolean
  readonly parts: readonly Part[]
}

/** Identifies a call of `lua/verbs/decide.lua`, so that a resent one counts once. */
export interface Call {
  readonly number: number
  /** Part of the key that remembers its charges. A later call uses it too, once this one is answered. */
  readonly record: string
  /** How long that key lasts, ms. */
  readonly lastsMs: number
}

const NUMBERS_PER_PART = 3

/** The answer to one question, read from a script's reply to many. `lua/verbs/decide.lua` has the format. */
export class Decision {
  readonly #reply: readonly number[]
  readonly #at: number
  readonly #flags: number

  /** @param at where the decision begins in the reply */
  constructor(reply: readonly number[], at: number) {
    this.#reply = reply
    this.#at = at
    this.#flags = reply[at] as number
  }

  /** Redis's time, µs since 1970. */
  get nowUs(): number {
    return this.#reply[0] as number
  }

  get allowed(): boolean {
    return (this.#flags & 1) === 1
  }

  /** Whether a key shares its state with others, because a limit already has `maxKeys` keys. */
  get sharesKey(): boolean {
    return (this.#flags & 2) === 2
  }

  /** Whether a limit has a newer definition than the question: then nothing was charged. */
  get isOutdated(): boolean {
    return (this.#flags & 4) === 4
  }

  /**
   * µs until this limit lets the request pass; 0 is now. Negative: only the mode lets it pass; `enforce` would refuse
   * it for that long.
   */
  waitUs(part: number): number {
    return this.#reply[this.#at + 1 + part * NUMBERS_PER_PART] as number
  }

  /** Whole units left. */
  left(part: number): number {
    return this.#reply[this.#at + 2 + part * NUMBERS_PER_PART] as number
  }

  /** When all units are available again, µs since 1970 on Redis's clock. */
  resetUs(part: number): number {
    return this.nowUs + (this.#reply[this.#at + 3 + part * NUMBERS_PER_PART] as number)
  }
}

/**
 * Encodes the input of `lua/verbs/decide.lua`. @param deadlineUs nothing is charged after it, on Redis's clock; '' for
 * none
 */
export function encodeQuestions(
  questions: readonly Question[],
  deadlineUs: number | '',
  call: Call,
): { keys: string[]; args: (string | number)[] } {
  const limits = new Map<LimitRef, number>()
  const states: string[] = []
  const asked = new Runs()
  for (const { takes, parts } of questions) {
    let text = takes ? 'take' : 'peek'
    for (const { limit, state, cost, lease = '' } of parts) {
      const number = limits.get(limit) ?? limits.size + 1
      if (number > limits.size) limits.set(limit, number)
      states.push(state)
      text += ` ${number} ${cost} ${lease};`
    }
    asked.add(text)
  }
  const keys: string[] = []
  const args: (string | number)[] = [limits.size, deadlineUs, `${call.number} `, call.lastsMs]
  const defined = new Map<string, number>()
  for (const [{ control, wire }, number] of limits) {
    keys.push(switchKey(control))
    const same = defined.get(wire)
    if (same === undefined) defined.set(wire, number)
    args.push(same ?? wire)
  }
  const [first] = questions[0]?.parts ?? []
  states.push(`${first?.limit.control}:last:${call.record}`)
  return { keys: keys.concat(states), args: args.concat(asked.end()) }
}

/** Most questions sent together are equal: each run of equal ones is sent once, with a repeat count. */
class Runs {
  readonly #runs: string[] = []
  #text = ''
  #times = 0

  add(text: string): void {
    if (text === this.#text) {
      this.#times += 1
      return
    }
    this.end()
    this.#text = text
    this.#times = 1
  }

  end(): readonly string[] {
    if (this.#times > 0) this.#runs.push(`${this.#times} ${this.#text}`)
    this.#times = 0
    return this.#runs
  }
}

/** The answers to several questions, in their order. */
export function readDecisions(questions: readonly Question[], reply: readonly number[]): Decision[] {
  let at = 1
  return questions.map(({ parts }) => {
    const decision = new Decision(reply, at)
    at += 1 + parts.length * NUMBERS_PER_PART
    return decision
  })
}
