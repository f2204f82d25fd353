import { createHash } from 'node:crypto'
import type { ShapeMode } from 'sluice'
import { checkCallOptions, InvalidInputError } from 'sluice/internal'
import { checkFieldName, checkFunction } from '../limits/key-functions.ts'
import type { Entry, HttpRequest, HttpResponse, Middleware, Pass } from '../middleware.ts'
import { MODES, type ModeSwitch } from '../mode-switch.ts'
import { fieldName } from '../responses/policy.ts'
import { problemResponse } from '../responses/problem.ts'
import { type Classify, type TrafficClass, TrafficClasses } from './traffic-classes.ts'

/** Options of all shedders. */
export interface ShedderOptions {
  /** The name of the shedder: in responses (`violated-policies`) and for its mode. */
  readonly name?: string
  /**
   * From critical to sheddable. The first of several is never shed for load. Default: `critical` and `default`, a fifth
   * of the room reserved for each, and `sheddable`.
   */
  readonly classes?: readonly TrafficClass[]
  /**
   * Default: `request.identity.trafficClass`. An unknown class counts as `default`, or as the last one if there is no
   * such class.
   */
  readonly classify?: Classify
  /**
   * Identifies the caller: within a class, the same callers are shed while the level is constant. Default: the
   * identity's name, else the remote address of the connection. undefined: unknown; each request is shed at random.
   */
  readonly key?: (request: HttpRequest) => string | undefined
  /** The mode until the switch sets another. `shadow` only counts, `off` does not even count. Default `enforce`. */
  readonly mode?: ShapeMode
  /** Sets the mode at run time, under the name of the shedder. */
  readonly modes?: ModeSwitch
  /** The field that names a shedder in shadow mode that would have refused the request. Default: none. */
  readonly shadowHeader?: string
  /** A monotonic clock, ms. Default: `performance.now`. */
  readonly now?: () => number
}

/** How many requests of a class this process has admitted and shed. */
export interface ShedCounts {
  /** In shadow, includes those that would have been shed. */
  readonly admitted: number
  readonly refused: number
  /** In shadow: those that would have been shed. */
  readonly wouldRefuse: number
}

/** Why a request is shed. */
export interface Shed {
  /** The wait until it may be let in, ms. */
  readonly retryAfterMs: number
  readonly detail: string
}

/** A request, as shedding sees it. */
export interface Arrival {
  readonly request: HttpRequest
  readonly rank: number
  readonly className: string
  /** The position of its caller among all callers, 0 to 1. Computes a hash. */
  cohort(): number
}

type Counts = { -readonly [K in keyof ShedCounts]: number }

/** Names of the options that all shedders have. */
const OPTIONS = ['name', 'classes', 'classify', 'key', 'mode', 'modes', 'shadowHeader', 'now']

/**
 * Middleware that sheds requests under overload, by their class: 503 with the problem type `temporary-reduced-capacity`
 * and `Retry-After`. Limits and full queues are handled elsewhere: they concern the caller, and are a 429.
 */
export abstract class Shedder implements Middleware {
  readonly name: string
  protected readonly classes: TrafficClasses
  /** A monotonic clock, ms. */
  protected readonly now: () => number
  readonly #options: ShedderOptions
  readonly #counts: readonly Counts[]
  readonly #mode: ShapeMode

  /**
   * @param call the function that makes it, for messages
   * @param own names of the options that only this kind has
   * @throws InvalidInputError
   * @internal
   */
  constructor(call: string, name: string, options: ShedderOptions, own: readonly string[]) {
    checkCallOptions(call, options, [...OPTIONS, ...own])
    const { mode = 'enforce', shadowHeader, key, classes, classify, now = () => performance.now() } = options
    if (options.name === '') throw new InvalidInputError('a shedder needs a name; got an empty one')
    if (!MODES.includes(mode)) {
      throw new InvalidInputError(`mode must be 'enforce', 'shadow' or 'off'; got ${JSON.stringify(mode)}`)
    }
    if (shadowHeader !== undefined) checkFieldName('shadowHeader', shadowHeader)
    if (key !== undefined) checkFunction('key', key)
    this.name = options.name ?? name
    this.now = now
    this.#options = options
    this.classes = new TrafficClasses(classes, classify)
    this.#mode = mode
    this.#counts = this.classes.names.map(() => ({ admitted: 0, refused: 0, wouldRefuse: 0 }))
  }

  /** Decides whether to shed a request. */
  protected abstract judge(arrival: Arrival): Shed | undefined

  /** The request was let in. @returns a function to call when it is over */
  protected admitted(_arrival: Arrival): (() => void) | undefined {
    return undefined
  }

  enter(request: HttpRequest): Entry | Promise<Entry> {
    const set = this.#options.modes?.modeOf(this.name)
    if (set instanceof Promise) return set.then((mode) => this.#enter(request, mode ?? this.#mode))
    return this.#enter(request, set ?? this.#mode)
  }

  /** Since the start of this process, by class name. */
  counts(): Readonly<Record<string, ShedCounts>> {
    return Object.fromEntries(this.classes.names.map((name, rank) => [name, { ...(this.#counts[rank] as Counts) }]))
  }

  #enter(request: HttpRequest, mode: ShapeMode): Entry {
    const arrival = this.#arrival(request)
    if (mode === 'off') return this.#pass(arrival)
    const counts = this.#counts[arrival.rank] as Counts
    const shed = this.judge(arrival)
    if (shed && mode === 'enforce') {
      counts.refused += 1
      return { response: this.#response(shed) }
    }
    counts.admitted += 1
    if (shed) counts.wouldRefuse += 1
    return this.#pass(arrival, shed && this.#shadowHeaders())
  }

  #arrival(request: HttpRequest): Arrival {
    const rank = this.classes.rankOf(request)
    const { key = callerOf } = this.#options
    const className = this.classes.names[rank] as string
    return { request, rank, className, cohort: () => cohortOf(key(request), Date.now()) }
  }

  #pass(arrival: Arrival, headers?: Pass['headers']): Pass {
    const leave = this.admitted(arrival)
    return { ...(headers && { headers }), ...(leave && { leave }) }
  }

  #response({ detail, retryAfterMs }: Shed): HttpResponse {
    const kind = 'temporary-reduced-capacity'
    return problemResponse({ status: 503, kind, detail, retryAfterMs, violatedPolicies: [this.name] })
  }

  #shadowHeaders(): Pass['headers'] {
    const { shadowHeader } = this.#options
    return shadowHeader === undefined ? undefined : { [shadowHeader.toLowerCase()]: fieldName(this.name) }
  }
}

function callerOf({ identity, remoteAddress }: HttpRequest): string | undefined {
  return identity?.name ?? remoteAddress
}

/** How often callers are shuffled, so that none is always among the first to be shed. ms */
const SHUFFLE_MS = 3_600_000

/**
 * The position of a caller among all callers of a class, from 0 to 1: those below the share that is shed are shed. A
 * hash, so that every process gives a caller the same position. (DAGOR, SoCC 2018, §4: users are hashed, anew every
 * hour)
 * @param key undefined for an unknown caller: a random position each time
 * @param wallMs the wall clock
 */
export function cohortOf(key: string | undefined, wallMs: number): number {
  if (key === undefined) return Math.random()
  const digest = createHash('sha256')
    .update(`${Math.floor(wallMs / SHUFFLE_MS)}:${key}`)
    .digest()
  return digest.readUInt32BE(0) / 2 ** 32
}

/** @throws InvalidInputError */
export function checkPositive(numbers: Readonly<Record<string, number | undefined>>, most = Number.MAX_VALUE): void {
  for (const [name, value] of Object.entries(numbers)) {
    if (value === undefined || (value > 0 && value <= most)) continue
    const range = most === Number.MAX_VALUE ? '> 0' : `> 0 and at most ${most}`
    throw new InvalidInputError(`${name} must be a number ${range}; got ${value}`)
  }
}
