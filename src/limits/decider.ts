import { LimiterUnavailableError } from '../errors.ts'
import { RedisClock } from '../redis/clock.ts'
import { Collector } from '../redis/collector.ts'
import { afterMs } from '../redis/deadlines.ts'
import { failureKind } from '../redis/failures.ts'
import { uniqueId } from '../redis/ids.ts'
import type { LimitScript } from '../redis/scripts.ts'
import { type Call, type Decision, encodeQuestions, type Part, type Question, readDecisions } from './decision.ts'
import { type Arguments, LimitClient, type LimitRedis } from './limit-client.ts'
import { hashTag } from './limit-keys.ts'

/** The maximum number of decisions per script: more would block Redis for other clients. */
const MOST_TOGETHER = 64
/**
 * One is in transit while Redis runs the other. With more, each would carry fewer decisions, and a script call costs as
 * much as several decisions.
 */
const SCRIPTS_UNDER_WAY = 2

const deciders = new WeakMap<LimitRedis, Decider>()

/** Whether all callers have timed out: then send nothing. */
type GivenUp = () => boolean

/**
 * Asks Redis for decisions on limits, several per script. Decisions requested in one tick share a script, in order.
 * While one script is in flight, those of one iteration of the event loop do; while two are, all that arrive until one
 * returns. Each gets its own answer.
 */
export class Decider {
  readonly #client: LimitClient
  /** On a cluster, the keys of one decision must be in one hash slot. */
  readonly isCluster: boolean
  /** Redis's clock minus this process's, µs. An upper bound: Redis reads its clock after the request was sent. */
  #clockUs: number | undefined
  readonly #clock = new RedisClock()
  /** Keyed by everything that separates scripts: the timeout and, on a cluster, the hash slot. */
  readonly #collectors = new Map<string, Collector<Question, Decision>>()

  private constructor(redis: LimitRedis) {
    this.#client = LimitClient.of(redis)
    this.isCluster = redis.isCluster === true
  }

  static of(redis: LimitRedis): Decider {
    const found = deciders.get(redis) ?? new Decider(redis)
    deciders.set(redis, found)
    return found
  }

  /** Estimate of Redis's time, ms since 1970, never ahead of it. Local time before the first decision. */
  get nowMs(): number {
    const nowUs = this.#clock.nowUs()
    return nowUs === undefined ? Date.now() : nowUs / 1000
  }

  /**
   * Charges all parts, or none. On a cluster, their keys must share a hash tag.
   * @param takes if false, nothing is charged
   * @throws LimiterUnavailableError
   */
  decide(parts: readonly Part[], takes: boolean, timeoutMs: number): Promise<Decision> {
    const slot = this.isCluster ? `${timeoutMs} ${hashTag((parts[0] as Part).limit.control)}` : String(timeoutMs)
    let collector = this.#collectors.get(slot)
    if (!collector) {
      collector = this.#newCollector(timeoutMs)
      this.#collectors.set(slot, collector)
    }
    return collector.add({ takes, parts })
  }

  /**
   * Runs a script of a limit. Sends nothing over a dead connection: the client would queue it and charge it later.
   * @throws LimiterUnavailableError
   */
  async run<T>(
    name: string,
    timeoutMs: number,
    script: LimitScript,
    keys: readonly string[],
    args: Arguments,
  ): Promise<T> {
    return this.#whenLive(name, timeoutMs, () => this.#client.run<T>(script, keys, args))
  }

  /**
   * As `run`, for a script whose last argument is the latest time to act: nothing is done after its caller has given up.
   */
  async runBefore<T extends readonly unknown[]>(
    name: string,
    timeoutMs: number,
    script: LimitScript,
    keys: readonly string[],
    args: Arguments,
  ): Promise<T> {
    const deadlineMs = performance.now() + timeoutMs
    return this.#whenLive(name, timeoutMs, () =>
      this.#runBefore(deadlineMs, (deadlineUs) => this.#client.run<T>(script, keys, [...args, deadlineUs])),
    )
  }

  async #whenLive<T>(name: string, timeoutMs: number, call: () => Promise<T>): Promise<T> {
    try {
      return await inTime(timeoutMs, async (givenUp) => {
        await this.#untilLive(givenUp)
        return call()
      })
    } catch (error) {
      throw asUnavailable(name, error)
    }
  }

  #newCollector(timeoutMs: number): Collector<Question, Decision> {
    const calls = new Calls(timeoutMs)
    const many = (questions: readonly Question[]) => this.#together(questions, timeoutMs, calls)
    const collector: Collector<Question, Decision> = new Collector({
      many,
      one: async (question) => {
        const [decision] = await many([question])
        if (decision instanceof Error) throw decision
        return decision as Decision
      },
      enough: () => MOST_TOGETHER,
      mostSendings: SCRIPTS_UNDER_WAY,
      // A server reads requests that arrive together one by one, each in its own turn of the event loop.
      defer: (send) => (collector.underWay > 0 ? setImmediate(send) : process.nextTick(send)),
    })
    return collector
  }

  async #together(
    questions: readonly Question[],
    timeoutMs: number,
    calls: Calls,
  ): Promise<readonly (Decision | Error)[]> {
    const deadlineMs = performance.now() + timeoutMs
    try {
      return await inTime(timeoutMs, async (givenUp) => {
        await this.#untilLive(givenUp)
        return this.#send(questions, deadlineMs, calls)
      })
    } catch (error) {
      return questions.map(({ parts }) => asUnavailable((parts[0] as Part).limit.name, error) as Error)
    }
  }

  async #untilLive(givenUp: GivenUp): Promise<void> {
    if (!this.#client.isLive) await this.#client.live()
    if (givenUp()) throw new Error('Connection is closed')
  }

  async #send(questions: readonly Question[], deadlineMs: number, calls: Calls): Promise<readonly Decision[]> {
    const reply = await this.#runBefore(deadlineMs, (deadlineUs) => {
      return calls.run((call) => {
        const { keys, args } = encodeQuestions(questions, deadlineUs, call)
        return this.#client.run<number[]>('decide', keys, args)
      })
    })
    return readDecisions(questions, reply)
  }

  /**
   * The client resends a command whose reply was lost, hence the deadline: nothing may be charged after all callers
   * have given up. If Redis's clock jumped forward, that looks the same: the reply holds the new time, so the script is
   * sent once more.
   */
  async #runBefore<T extends readonly unknown[]>(
    deadlineMs: number,
    run: (deadlineUs: number | '') => Promise<T>,
    again = false,
  ): Promise<T> {
    const sentMs = performance.now()
    const reply = await run(this.#clockUs === undefined ? '' : Math.ceil(this.#clockUs + deadlineMs * 1000))
    this.#clockUs = (reply[0] as number) - sentMs * 1000
    this.#clock.sample(reply[0] as number, sentMs)
    if (reply.length > 1) return reply
    if (again || performance.now() > deadlineMs) throw new Error('Command timed out')
    return this.#runBefore(deadlineMs, run, true)
  }
}

/** How long a record is used, ms: a new lifetime with each call would cost as much as a charge. */
const RECORD_MS = 60_000

/**
 * Numbers the scripts of a collector, so that a resent one counts once. A call has a record of its own until it is
 * answered: after that it is not resent, and a later one uses the record.
 */
class Calls {
  readonly #caller = uniqueId()
  readonly #lastsMs: number
  readonly #recordsInUse = new Set<number>()
  #number = 0

  constructor(timeoutMs: number) {
    this.#lastsMs = 2 * RECORD_MS + timeoutMs
  }

  async run<T>(send: (call: Call) => Promise<T>): Promise<T> {
    let free = 0
    while (this.#recordsInUse.has(free)) free += 1
    this.#recordsInUse.add(free)
    this.#number += 1
    const record = `${this.#caller}:${Math.floor(performance.now() / RECORD_MS)}:${free}`
    try {
      return await send({ number: this.#number, record, lastsMs: this.#lastsMs })
    } finally {
      this.#recordsInUse.delete(free)
    }
  }
}

/** Rejects after `timeoutMs`, whatever `run` does later. */
function inTime<T>(timeoutMs: number, run: (givenUp: GivenUp) => Promise<T>): Promise<T> {
  let isGivenUp = false
  return new Promise((resolve, reject) => {
    const late = () => {
      isGivenUp = true
      reject(new Error(`Command timed out: Redis did not answer within ${timeoutMs} ms`))
    }
    const done = afterMs(timeoutMs, late)
    run(() => isGivenUp)
      .finally(done)
      .then(resolve, reject)
  })
}

/** Wraps an error of Redis in LimiterUnavailableError; any other error is returned unchanged. */
function asUnavailable(name: string, error: unknown): unknown {
  if (!(error instanceof Error) || !failureKind(error)) return error
  return new LimiterUnavailableError(name, error.message, { cause: error })
}
