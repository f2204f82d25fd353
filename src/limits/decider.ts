import { Collector } from '../collector.ts'
import { Deadlines } from '../deadlines.ts'
import { LimiterUnavailableError } from '../errors.ts'
import { failureKind } from '../redis-failures.ts'
import { type Arguments, LimitClient, type LimitRedis, type LimitScript } from './limit-client.ts'
import { hashTag } from './limit-keys.ts'

/** A limit as the scripts know it. */
export interface LimitRef {
  /** For people. */
  readonly name: string
  readonly control: string
  /** What it allows, JSON. */
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

/** What a limit says of one key, when it was asked. */
export interface PartAnswer {
  /** µs until the cost conforms: 0 is now. */
  readonly waitUs: number
  /** Whole units that are left. */
  readonly left: number
  /** When all units are there again, µs since 1970 on Redis's clock. */
  readonly resetUs: number
}

export interface Decision {
  readonly nowUs: number
  readonly allowed: boolean
  /** Whether a key shares its state with others, because a limit has as many keys as it may. */
  readonly sharesKey: boolean
  readonly parts: readonly PartAnswer[]
}

interface Call {
  readonly takes: boolean
  readonly parts: readonly Part[]
  /** Whoever asked does not wait any more: nothing must be charged. */
  givenUp: boolean
}

/** Longer scripts would hold Redis up for others. */
const MOST_TOGETHER = 64
const IN_FLIGHT = 2
const NUMBERS_PER_PART = 3

const deciders = new WeakMap<LimitRedis, Decider>()
const deadlines = new Map<number, Deadlines>()

/**
 * Asks Redis for decisions over limits. Those that a program asks for in one turn of the event loop, while others are
 * under way, are one script, in their order; each has an answer of its own.
 */
export class Decider {
  readonly #client: LimitClient
  /** On a cluster the keys of one decision have to lie in one slot. */
  readonly isCluster: boolean
  readonly #collectors = new Map<string, Collector<Call, Decision>>()

  private constructor(redis: LimitRedis) {
    this.#client = LimitClient.of(redis)
    this.isCluster = redis.isCluster === true
  }

  static of(redis: LimitRedis): Decider {
    const found = deciders.get(redis) ?? new Decider(redis)
    deciders.set(redis, found)
    return found
  }

  /**
   * All parts are charged, or none. On a cluster their keys have to share a hash tag.
   * @param takes false only looks
   * @throws LimiterUnavailableError
   */
  decide(parts: readonly Part[], takes: boolean, timeoutMs: number): Promise<Decision> {
    const call: Call = { takes, parts, givenUp: false }
    const { name, control } = (parts[0] as Part).limit
    const giveUp = () => {
      call.givenUp = true
    }
    const collector = this.#collector(control)
    const decided = collector.underWay === 0 ? collector.alone(call) : collector.add(call)
    return inTime(name, timeoutMs, decided, giveUp)
  }

  /**
   * Runs a script of a limit. Over a dead connection nothing is sent, where it would be kept and charged later.
   * @throws LimiterUnavailableError
   */
  run<T>(name: string, timeoutMs: number, script: LimitScript, keys: readonly string[], args: Arguments): Promise<T> {
    let givenUp = false
    const giveUp = () => {
      givenUp = true
    }
    const send = () => {
      if (givenUp) throw new Error('Connection is closed')
      return this.#client.run<T>(script, keys, args)
    }
    return inTime(name, timeoutMs, this.#client.isLive ? send() : this.#client.live().then(send), giveUp)
  }

  // What is sent together has to lie in one slot of a cluster.
  #collector(control: string): Collector<Call, Decision> {
    const tag = this.isCluster ? (hashTag(control) as string) : ''
    const found =
      this.#collectors.get(tag) ??
      new Collector<Call, Decision>({
        one: async (call) => (await this.#send([call]))[0] as Decision,
        many: (calls) => this.#send(calls),
        enough: (calls) => Math.min(MOST_TOGETHER, Math.ceil(calls / IN_FLIGHT)),
      })
    this.#collectors.set(tag, found)
    return found
  }

  async #send(calls: readonly Call[]): Promise<readonly Decision[]> {
    if (!this.#client.isLive) await this.#client.live()
    const kept = calls.some(({ givenUp }) => givenUp) ? calls.filter(({ givenUp }) => !givenUp) : calls
    if (kept.length === 0) return []
    const { keys, args } = encodeCalls(kept)
    const reply = await this.#client.run<number[]>('decide', keys, args)
    const decisions = readDecisions(kept, reply)
    if (kept === calls) return decisions
    // Those that were given up have been answered.
    return calls.map((call) => decisions[kept.indexOf(call)] as Decision)
  }
}

function encodeCalls(calls: readonly Call[]): { keys: string[]; args: string[] } {
  const limits = new Map<LimitRef, number>()
  const states: string[] = []
  const asked: string[] = []
  for (const { takes, parts } of calls) {
    let verb = takes ? 'take' : 'peek'
    for (const { limit, state, cost, lease } of parts) {
      const number = limits.get(limit) ?? limits.size + 1
      if (number > limits.size) limits.set(limit, number)
      states.push(state)
      asked.push(lease === undefined ? `${verb} ${number} ${cost}` : `${verb} ${number} ${cost} ${lease}`)
      verb = 'and'
    }
  }
  const refs = [...limits.keys()]
  const keys = [...refs.map(({ control }) => control), ...states]
  return { keys, args: [String(limits.size), ...refs.map(({ wire }) => wire), ...asked] }
}

function readDecisions(calls: readonly Call[], reply: readonly number[]): Decision[] {
  const nowUs = reply[0] as number
  let at = 1
  return calls.map(({ parts }) => {
    const flags = reply[at++] as number
    const answers = parts.map(() => {
      const answer = { waitUs: reply[at] as number, left: reply[at + 1] as number, resetUs: reply[at + 2] as number }
      at += NUMBERS_PER_PART
      return answer
    })
    return { nowUs, allowed: (flags & 1) === 1, sharesKey: (flags & 2) === 2, parts: answers }
  })
}

function inTime<T>(name: string, timeoutMs: number, running: Promise<T>, onDeadline: () => void): Promise<T> {
  return new Promise((resolve, reject) => {
    const done = deadlinesOf(timeoutMs).add(() => {
      onDeadline()
      reject(new LimiterUnavailableError(name, `Redis did not answer within ${timeoutMs} ms`))
    })
    running.then(
      (value) => {
        done()
        resolve(value)
      },
      (error: unknown) => {
        done()
        reject(asUnavailable(name, error))
      },
    )
  })
}

/** What a caller is told of an error: of Redis, that the limit is unavailable; anything else as it is. */
function asUnavailable(name: string, error: unknown): unknown {
  if (!(error instanceof Error) || !failureKind(error)) return error
  return new LimiterUnavailableError(name, error.message, { cause: error })
}

function deadlinesOf(timeoutMs: number): Deadlines {
  const found = deadlines.get(timeoutMs) ?? new Deadlines(timeoutMs)
  deadlines.set(timeoutMs, found)
  return found
}
