import { NotReplicatedError } from '../errors.ts'
import type { Client } from '../redis/commands.ts'
import { replicatedKey } from '../redis/keys.ts'
import type { Durability } from '../shape/durability.ts'

/** Lifetime of the key that is written before replicas are asked. ms */
const MARK_LIFETIME_MS = 60_000
/** WAIT takes 0 for forever. ms */
const LEAST_MS = 1
/** Slack for a reply sent just before the timeout, ms. */
const ANSWER_MS = 50
/** The counter of accepted but unconfirmed jobs, in the hash of the meter. */
const COUNTER = 'unconfirmedTotal'

type Terms = Required<Durability>

/** The parts of ioredis that we use beyond BullMQ's types. */
interface Connected {
  readonly isCluster?: boolean
  readonly stream?: object | null
  nodes?(role: 'master'): Connected[]
  pipeline(): Chain
  hincrby(key: string, field: string, by: number): Promise<number>
}
interface Chain {
  call(name: string, ...args: (string | number)[]): Chain
  exec(): Promise<[error: Error | null, reply: unknown][] | null>
}

/**
 * The connections over which a call of several scripts was first answered. A later answer may come from a server that
 * took over and lacks earlier accepted jobs.
 */
export class FirstAnswer {
  readonly #client: Connected
  connections: readonly Connection[] | undefined

  constructor(client: Client) {
    this.#client = client as unknown as Connected
  }

  /** Called as soon as one of the scripts has been answered. */
  note(): void {
    this.connections ??= connectionsOf(this.#client)
  }
}

/**
 * Waits until replicas have everything that the master of a queue has accepted. WAIT covers only writes on its own
 * connection, and on a new one it answers at once. So something is written before it, on the same connection, and its
 * answer counts only if no connection was replaced since the master accepted. Everything accepted by then comes earlier
 * in the replication stream, including writes of other programs.
 */
export class ReplicaConfirmation {
  readonly #queueName: string
  readonly #key: string
  readonly #meterKey: string
  #underWay: Promise<unknown> = Promise.resolve()
  /** The next question, which waits for the answer to the previous one: calls until then share it. */
  #next: Question | undefined
  /** How long questions have kept the connection so far, without the current one. ms */
  #keptMs = 0
  #askedAtMs: number | undefined

  /** @param toKey names a key of the queue, in its hash slot */
  constructor(queueName: string, toKey: (type: string) => string) {
    this.#queueName = queueName
    this.#key = replicatedKey(toKey(''))
    this.#meterKey = toKey('meta:meter')
  }

  /**
   * How long questions have kept the connection so far, ms: calls sent meanwhile wait that long. Read at the beginning
   * of a call, and passed to {@link confirm}.
   */
  get keptMs(): number {
    return this.#keptMs + (this.#askedAtMs === undefined ? 0 : performance.now() - this.#askedAtMs)
  }

  /**
   * Called as soon as the master has answered.
   * @param keptMs at the beginning of the call: its `timeoutMs` includes the wait for other callers' questions since
   * @param first the first answer, if the jobs were sent in parts
   * @throws NotReplicatedError
   */
  async confirm(
    client: Client,
    terms: Terms,
    jobIds: readonly string[],
    keptMs: number,
    first?: FirstAnswer,
  ): Promise<void> {
    const connected = client as unknown as Connected
    const before = first?.connections ?? connectionsOf(connected)
    const leftMs = Math.max(LEAST_MS, terms.timeoutMs - (this.keptMs - keptMs))
    const [acknowledged, cause] = await within(leftMs, this.#together(connected, terms, leftMs)).then(
      (count) => [count, undefined] as const,
      (error: unknown) => [0, error] as const,
    )
    const isSame = areStill(before, connectionsOf(connected))
    if (acknowledged >= terms.replicas && isSame) return
    // Only if Redis answers: a count is not worth a wait.
    if (isSame && cause === undefined) {
      const counted = connected.hincrby(this.#meterKey, COUNTER, jobIds.length)
      await within(
        0,
        counted.catch(() => 0),
      )
    }
    const known = { jobIds, acknowledged: isSame ? acknowledged : 0, ...terms }
    throw new NotReplicatedError(this.#queueName, known, cause === undefined ? {} : { cause })
  }

  #together(client: Connected, { replicas, timeoutMs }: Terms, leftMs: number): Promise<number> {
    const terms = `${replicas} ${timeoutMs}`
    const untilMs = performance.now() + leftMs
    if (this.#next?.terms === terms) {
      this.#next.untilMs = Math.max(this.#next.untilMs, untilMs)
      return this.#next.acknowledged
    }
    const acknowledged = this.#underWay.then(() => {
      if (this.#next === question) this.#next = undefined
      return this.#ask(client, replicas, question.untilMs - performance.now())
    })
    const question: Question = { terms, acknowledged, untilMs }
    this.#next = question
    this.#underWay = acknowledged.catch(() => undefined)
    return acknowledged
  }

  /** On a cluster, a pipeline goes to the node of its key. */
  async #ask(client: Connected, replicas: number, forMs: number): Promise<number> {
    const waitMs = Math.max(LEAST_MS, Math.ceil(forMs))
    this.#askedAtMs = performance.now()
    try {
      const chain = client.pipeline().call('set', this.#key, '', 'PX', MARK_LIFETIME_MS).call('wait', replicas, waitMs)
      const replies = (await chain.exec()) ?? []
      for (const [error] of replies) if (error) throw error
      return Number(replies[1]?.[1] ?? 0)
    } finally {
      this.#keptMs = this.keptMs
      this.#askedAtMs = undefined
    }
  }
}

interface Question {
  readonly terms: string
  readonly acknowledged: Promise<number>
  /** The latest end of the calls that share it. ms of `performance.now()` */
  untilMs: number
}

/** How many replicas have confirmed by then: none has, as far as known, without an answer. */
async function within(ms: number, acknowledged: Promise<number>): Promise<number> {
  let timer: NodeJS.Timeout | undefined
  const over = new Promise<number>((resolve) => {
    // An answer that came while this process was busy is read first.
    timer = setTimeout(() => setImmediate(resolve, 0), ms + ANSWER_MS)
  })
  try {
    return await Promise.race([acknowledged, over])
  } finally {
    clearTimeout(timer)
  }
}

type Connection = readonly [client: object, stream: object | null | undefined]

function connectionsOf(client: Connected): Connection[] {
  const nodes = client.isCluster ? (client.nodes?.('master') ?? []) : [client]
  return nodes.map((node) => [node, node.stream])
}

/** A connection that was only opened meanwhile is not the one on which the master accepted. */
function areStill(before: readonly Connection[], after: readonly Connection[]): boolean {
  if (before.length !== after.length) return false
  return before.every(([client, stream], i) => {
    const [now, nowStream] = after[i] as Connection
    return client === now && (!stream || stream === nowStream)
  })
}
