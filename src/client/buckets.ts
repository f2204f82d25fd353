import { Gate } from './gate.ts'
import { Lru } from './lru.ts'

/** Longer paths are told apart by so many segments, beside their whole. */
const MAX_SEGMENTS = 8
/** Ways into a bucket, for each bucket that is remembered. */
const ROUTES_PER_BUCKET = 10

/** Where a request goes, as far as buckets depend on it. */
export interface Route {
  readonly origin: string
  /** The whole path first, then ever shorter parts of it; each with method and origin. */
  readonly keys: readonly string[]
}

export function routeOf(method: string, { origin, pathname }: URL): Route {
  const segments = pathname.split('/').filter(Boolean)
  const parts = segments.slice(0, MAX_SEGMENTS).map((_, i) => segments.slice(0, i + 1).join('/'))
  const paths = [segments.join('/'), ...parts.reverse()]
  return { origin, keys: [...new Set(paths)].map((path) => `${method} ${origin}/${path}`) }
}

/**
 * Which buckets a request is taken from. What an answer says without naming a bucket holds for its whole origin. Where it
 * names one, that is the bucket of its path, and, until they tell their own, of paths that begin alike.
 */
export class Buckets {
  readonly #slowBelow: number
  readonly #gates: Lru<Gate>
  readonly #routes: Lru<readonly string[]>

  constructor({ maxBuckets, slowBelow }: { readonly maxBuckets: number; readonly slowBelow: number }) {
    this.#slowBelow = slowBelow
    this.#gates = new Lru(maxBuckets)
    this.#routes = new Lru(maxBuckets * ROUTES_PER_BUCKET)
  }

  /** How many are remembered. */
  get size(): number {
    return this.#gates.size
  }

  /** What a request has to pass: its origin's gate first, then those of its buckets. */
  gatesOf({ origin, keys }: Route): readonly Gate[] {
    let names: readonly string[] | undefined
    for (const key of keys) {
      names = this.#routes.get(key)
      if (names) break
    }
    return [origin, ...(names ?? [])].map((name) => this.gate(name))
  }

  gate(name: string): Gate {
    const known = this.#gates.get(name)
    if (known) return known
    const gate = new Gate(name, this.#slowBelow)
    this.#gates.set(name, gate)
    return gate
  }

  /** An answer named the buckets of its request. */
  learn({ keys }: Route, names: readonly string[]): void {
    for (const key of keys) this.#routes.set(key, names)
  }
}
