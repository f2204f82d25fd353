import { InvalidInputError } from 'sluice/internal'
import type { HttpRequest } from '../middleware.ts'

/** Requests that are shed together. */
export interface TrafficClass {
  readonly name: string
  /**
   * Share of the room that is kept for this class and those before it, 0 to 1: classes after it never fill it. Places
   * are whole, rounded up. Default 0.
   */
  readonly reserved?: number
}

/** The class of a request; undefined: the default one. It must not throw. */
export type Classify = (request: HttpRequest) => string | undefined

/**
 * From critical to sheddable. A fifth is kept for critical requests (Stripe, "Scaling your API with rate limiters",
 * 2017: "if our reservation number is 20%"), another fifth for both of the first two.
 */
const DEFAULT_CLASSES: readonly TrafficClass[] = [
  { name: 'critical', reserved: 0.2 },
  { name: 'default', reserved: 0.2 },
  { name: 'sheddable' },
]

const DEFAULT_CLASS = 'default'

/** The classes in their order, and how much room each may fill. The rank identifies a class: 0 is the critical one. */
export class TrafficClasses {
  readonly names: readonly string[]
  /** By rank: the share of the room kept for other classes. */
  readonly #kept: readonly number[]
  readonly #ranks: ReadonlyMap<string, number>
  readonly #defaultRank: number
  readonly #classify: Classify

  /**
   * @param classify default: the class of the identity found by earlier middleware
   * @throws InvalidInputError
   */
  constructor(classes: readonly TrafficClass[] = DEFAULT_CLASSES, classify: Classify = classOfIdentity) {
    checkClasses(classes)
    this.names = classes.map(({ name }) => name)
    this.#kept = classes.map((_, rank) => sum(classes.slice(0, rank)))
    this.#ranks = new Map(this.names.map((name, rank) => [name, rank]))
    this.#defaultRank = this.#ranks.get(DEFAULT_CLASS) ?? classes.length - 1
    this.#classify = classify
  }

  /** An unknown class counts as the default one: `default`, or the last if there is none of that name. */
  rankOf(request: HttpRequest): number {
    return this.#ranks.get(this.#classify(request) ?? DEFAULT_CLASS) ?? this.#defaultRank
  }

  /** How many classes may be shed for load: all but the first, unless it is the only one. */
  get sheddable(): number {
    return Math.max(1, this.names.length - 1)
  }

  /** Whether a class is shed only when every place is taken. */
  isCritical(rank: number): boolean {
    return rank === 0 && this.names.length > 1
  }

  /** How many of the places may be taken, by all classes together, while a class is still let in; at least 1. */
  roomOf(rank: number, places: number): number {
    // Sums of decimal shares may be slightly too large.
    return Math.max(1, places - Math.ceil(places * (this.#kept[rank] as number) - 1e-9))
  }
}

function classOfIdentity({ identity }: HttpRequest): string | undefined {
  return identity?.trafficClass
}

function sum(classes: readonly TrafficClass[]): number {
  return classes.reduce((total, { reserved = 0 }) => total + reserved, 0)
}

function checkClasses(classes: readonly TrafficClass[]): void {
  const names = new Set(classes.map(({ name }) => name))
  if (classes.length === 0 || names.size < classes.length || names.has('')) {
    throw new InvalidInputError(`classes need distinct names; got ${JSON.stringify(classes)}`)
  }
  const wrong = classes.find(({ reserved = 0 }) => !(reserved >= 0 && reserved < 1))
  if (wrong)
    throw new InvalidInputError(`reserved must be a share, 0 or more and below 1; got ${JSON.stringify(wrong)}`)
  if (sum(classes) > 1) throw new InvalidInputError(`the reserved shares must not exceed 1; got ${sum(classes)}`)
}
