import type { Inspector, QueueStatus, RedisReplica, RedisState } from 'sluice/inspect'
import type { Identity } from 'sluice-gateway'
import { arranged, type FleetRow, type FleetSums, type PageTerms, rowOf, sumsOf } from './fleet-page.ts'
import { SharedReads } from './shared-reads.ts'
import { maySee } from './visible.ts'

/** What Redis says of itself, without the addresses of replicas: callers need not know these. */
export interface ShownRedis extends Omit<RedisState, 'replicas'> {
  readonly replicas?: readonly Omit<RedisReplica, 'address'>[]
}

/** Queues at one moment: all that the caller may see, or a page of very many. */
export interface FleetPage {
  readonly at: Date
  readonly redis: ShownRedis
  readonly queues: readonly QueueStatus[]
  /** How many queues the caller may see, and how many of these match the filter. */
  readonly total: number
  readonly matching: number
  /** How many come before the page. */
  readonly start: number
  /** Over all queues that the caller may see, if these do not fit on the page; undefined until all were read once. */
  readonly sums: FleetSums | undefined
}

/** Sent with every read of the fleet. */
export interface FleetFacts {
  readonly title: string
  readonly allowActions: boolean
  readonly showData: boolean
}

/** The fleet response, before it is serialized to JSON. */
export interface FleetAnswer extends FleetFacts, FleetPage {}

export function fleetAnswer({ at, ...page }: FleetPage, facts: FleetFacts): FleetAnswer {
  return { at, ...facts, ...page }
}

/** Less than a second, so that each turn of the event hub reads again. */
const MAX_AGE_MS = 500
/** Up to this number, all queues are sent whatever the page: the browser sorts and filters them itself. */
const WHOLE = 200

/** The queues, read once for all requests within half a second. */
export class FleetReader {
  readonly #inspector: Inspector
  readonly #survey: FleetSurvey
  readonly #reads = new SharedReads(MAX_AGE_MS)

  constructor(inspector: Inspector) {
    this.#inspector = inspector
    this.#survey = new FleetSurvey(inspector)
  }

  /** The queues that the caller may see; of many, those of a page. */
  page(terms: PageTerms, identity: Identity | undefined): Promise<FleetPage> {
    return this.#reads.read(JSON.stringify(['page', terms, identity?.queues]), () => this.#readPage(terms, identity))
  }

  /** Names of the queues that have a shape. */
  names(): Promise<readonly string[]> {
    return this.#reads.read('names', () => this.#inspector.queues())
  }

  /** A queue of the fleet; undefined where there is none of that name. */
  async status(name: string): Promise<QueueStatus | undefined> {
    const names = await this.names()
    if (!names.includes(name)) return undefined
    const queues = await this.#statuses(names.length <= WHOLE ? names : [name])
    return queues.find((queue) => queue.name === name)
  }

  /** What Redis says of itself. Its memory would tell who sees only some queues what happens in others. */
  async redis(identity: Identity | undefined): Promise<ShownRedis> {
    const { replicas, memory, ...state } = await this.#reads.read('redis', () => this.#inspector.redisState())
    return {
      ...state,
      ...(replicas ? { replicas: replicas.map(({ address: _, ...replica }) => replica) } : {}),
      ...(memory && identity?.queues === undefined ? { memory } : {}),
    }
  }

  async #readPage(terms: PageTerms, identity: Identity | undefined): Promise<FleetPage> {
    const [names, redis] = await Promise.all([this.names(), this.redis(identity)])
    const seen = names.filter((name) => maySee(identity, name))
    const total = seen.length
    if (terms.count === 0)
      return { at: new Date(), redis, queues: [], total, matching: total, start: 0, sums: undefined }
    if (seen.length <= WHOLE) {
      // One read for all callers also serves those that see only a part.
      const found = await this.#statuses(names.length <= WHOLE ? names : seen)
      const queues = found.filter(({ name }) => maySee(identity, name))
      const count = queues.length
      return { at: atOf(queues), redis, queues, total: count, matching: count, start: 0, sums: undefined }
    }
    return { redis, ...(await this.#readPart(terms, names, seen)) }
  }

  async #readPart(terms: PageTerms, names: readonly string[], seen: readonly string[]) {
    const { start, count, sort, down } = terms
    const seenOf = (rows: ReadonlyMap<string, FleetRow>) => seen.flatMap((name) => rows.get(name) ?? [])
    const rows = await this.#rowsFor(terms, names)
    const surveyed = rows && seenOf(rows)
    const isUp = sort !== 'name' || !down
    const order = surveyed ? arranged(surveyed, terms).map(({ name }) => name) : isUp ? seen : seen.toReversed()
    const queues = await this.#statuses(order.slice(start, start + count))
    // Sorting by name needs no survey: one that is due starts once the page is read.
    const latest = surveyed ? undefined : this.#survey.latest(names)
    const known = surveyed ?? (latest && seenOf(latest))
    return {
      at: atOf(queues),
      queues,
      total: seen.length,
      matching: order.length,
      start,
      sums: known && sumsOf(known),
    }
  }

  /** What the page is arranged by; undefined where it comes by name. */
  async #rowsFor({ sort, filter, marked }: PageTerms, names: readonly string[]) {
    const isWhole = filter.trim() === '' && !marked
    if (sort === 'name' && isWhole) return undefined
    // The first page of all does not wait for the first survey.
    return sort === 'look' && isWhole ? this.#survey.latest(names) : this.#survey.rows(names)
  }

  #statuses(names: readonly string[]): Promise<readonly QueueStatus[]> {
    if (names.length === 0) return Promise.resolve([])
    return this.#reads.read(JSON.stringify(['statuses', names]), async () => {
      const found = await this.#inspector.status(names)
      return found.filter((status) => status !== undefined)
    })
  }
}

function atOf(queues: readonly QueueStatus[]): Date {
  return queues[0]?.at ?? new Date()
}

/** Reading very many queues takes a while: the survey runs at most this often, and for at most a tenth of the time. */
const MIN_PAUSE_MS = 5000
const SHARE = 10

/** A few numbers per queue of a large fleet, refreshed only while they are requested. */
class FleetSurvey {
  readonly #inspector: Inspector
  #rows: ReadonlyMap<string, FleetRow> | undefined
  #reading: Promise<ReadonlyMap<string, FleetRow>> | undefined
  #nextMs = 0

  constructor(inspector: Inspector) {
    this.#inspector = inspector
  }

  /** The last survey; undefined before the first. Starts another one in the background if it is due. */
  latest(names: readonly string[]): ReadonlyMap<string, FleetRow> | undefined {
    if (!this.#reading && performance.now() >= this.#nextMs) void this.#read(names).catch(() => {})
    return this.#rows
  }

  /** The same, but waits for the first survey. */
  async rows(names: readonly string[]): Promise<ReadonlyMap<string, FleetRow>> {
    return this.latest(names) ?? this.#reading ?? this.#read(names)
  }

  #read(names: readonly string[]): Promise<ReadonlyMap<string, FleetRow>> {
    const startedMs = performance.now()
    this.#reading = this.#readAll(names).finally(() => {
      const nowMs = performance.now()
      this.#nextMs = nowMs + Math.max(MIN_PAUSE_MS, (nowMs - startedMs) * (SHARE - 1))
      this.#reading = undefined
    })
    return this.#reading
  }

  async #readAll(names: readonly string[]): Promise<ReadonlyMap<string, FleetRow>> {
    const rows = new Map<string, FleetRow>()
    for await (const status of this.#inspector.statuses(names)) {
      rows.set(status.name, rowOf(status, this.#rows?.get(status.name)))
    }
    this.#rows = rows
    return rows
  }
}
