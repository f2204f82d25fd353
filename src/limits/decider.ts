import { Collector } from '../collector.ts'
import { Deadlines } from '../deadlines.ts'
import { LimiterUnavailableError } from '../errors.ts'
import { failureKind } from '../redis-failures.ts'
import { type Arguments, LimitClient, type LimitRedis, type LimitScript } from './limit-client.ts'
import { hashTag, switchKey } from './limit-keys.ts'

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
  /** µs until nothing stands in the way: 0 is now. Below 0: only its mode lets it pass, which would wait for so long. */
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
  /** Whether a limit has a newer definition than the one that it was asked with: then nothing was charged. */
  readonly isOutdated: boolean
  readonly parts: readonly PartAnswer[]
}

interface Call {
  readonly takes: boolean
  readonly parts: readonly Part[]
  /** When nobody waits for it any more, ms of this process's clock. */
  readonly deadlineMs: number
  /** Whoever asked does not wait any more: nothing must be charged. */
  givenUp: boolean
}

/** Longer scripts would hold Redis up for others. */
const MOST_TOGETHER = 64
/** Fewer are not sent apart from those that follow in the same turn: each script costs as much as some decisions. */
const LEAST_TOGETHER = 16
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
  /** Redis's clock less this process's, µs: at most, since the answer was made some time after the question was sent. */
  #clockUs: number | undefined
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
    const call: Call = { takes, parts, deadlineMs: performance.now() + timeoutMs, givenUp: false }
    const { name, control } = (parts[0] as Part).limit
    const giveUp = () => {
      call.givenUp = true
    }
    return inTime(name, timeoutMs, this.#collector(control).add(call), giveUp)
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
        enough: (calls) => Math.min(MOST_TOGETHER, Math.max(LEAST_TOGETHER, Math.ceil(calls / IN_FLIGHT))),
      })
    this.#collectors.set(tag, found)
    return found
  }

  async #send(calls: readonly Call[]): Promise<readonly Decision[]> {
    if (!this.#client.isLive) await this.#client.live()
    const kept = calls.some(({ givenUp }) => givenUp) ? calls.filter(({ givenUp }) => !givenUp) : calls
    if (kept.length === 0) return []
    const decisions = await this.#run(kept)
    if (kept === calls) return decisions
    // Those that were given up have been answered.
    return calls.map((call) => decisions[kept.indexOf(call)] as Decision)
  }

  /**
   * A command whose reply was lost is sent again by the client: after everybody has given up, nothing is to be charged. A
   * clock that was put forward looks like that too; what comes back says what time it is.
   */
  async #run(calls: readonly Call[], again = false): Promise<readonly Decision[]> {
    const sentMs = performance.now()
    const deadlineMs = Math.max(...calls.map((call) => call.deadlineMs))
    const deadlineUs = this.#clockUs === undefined ? '' : Math.ceil(this.#clockUs + deadlineMs * 1000)
    const { keys, args } = encodeCalls(calls, deadlineUs)
    const reply = await this.#client.run<number[]>('decide', keys, args)
    this.#clockUs = (reply[0] as number) - sentMs * 1000
    if (reply.length > 1) return readDecisions(calls, reply)
    if (again || performance.now() > deadlineMs) throw new Error('Command timed out')
    return this.#run(calls, true)
  }
}

function encodeCalls(calls: readonly Call[], deadlineUs: number | ''): { keys: string[]; args: string[] } {
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
  const keys = [...refs.map(({ control }) => switchKey(control)), ...states]
  return { keys, args: [String(limits.size), String(deadlineUs), ...refs.map(({ wire }) => wire), ...asked] }
}

function readDecisions(calls: readonly Call[], reply: readonly number[]): Decision[] {
  const nowUs = reply[0] as number
  let at = 1
  return calls.map(({ parts }) => {
    const flags = reply[at++] as number
    const answers = parts.map(() => {
      const [waitUs, left, resetInUs] = [reply[at] as number, reply[at + 1] as number, reply[at + 2] as number]
      at += NUMBERS_PER_PART
      return { waitUs, left, resetUs: nowUs + resetInUs }
    })
    return { nowUs, ...readFlags(flags), parts: answers }
  })
}

function readFlags(flags: number): Pick<Decision, 'allowed' | 'sharesKey' | 'isOutdated'> {
  return { allowed: (flags & 1) === 1, sharesKey: (flags & 2) === 2, isOutdated: (flags & 4) === 4 }
}

function inTime<T>(name: string, timeoutMs: number, running: Promise<T>, onDeadline: () => void): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = () => {
      onDeadline()
      reject(new LimiterUnavailableError(name, `Redis did not answer within ${timeoutMs} ms`))
    }
    // In a program that was busy the answer may have come, and only not been read.
    const done = deadlinesOf(timeoutMs).add(() => setImmediate(late))
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
