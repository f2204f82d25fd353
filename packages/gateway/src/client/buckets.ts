import { LRUCache } from 'lru-cache'
import { Gate } from './gate.ts'

/** Longer paths are distinguished by this many segments, besides the whole path. */
const MAX_SEGMENTS = 8
/** Routes remembered for each remembered bucket. */
const ROUTES_PER_BUCKET = 10

/** Where a request goes, as far as buckets depend on it. */
export interface Route {
  readonly origin: string
  /** The whole path first, then shorter and shorter prefixes of it; each with method and origin. */
  readonly keys: readonly string[]
}

export function routeOf(method: string, { origin, pathname }: URL): Route {
  const segments = pathname.split('/').filter(Boolean)
  const parts = segments.slice(0, MAX_SEGMENTS).map((_, i) => segments.slice(0, i + 1).join('/'))
  const paths = [segments.join('/'), ...parts.reverse()]
  return { origin, keys: [...new Set(paths)].map((path) => `${method} ${origin}/${path}`) }
}

// With `max` instead, lru-cache would allocate memory for all entries at once.
function lru<T extends object>(most: number): LRUCache<string, T> {
  return new LRUCache({ maxSize: most, sizeCalculation: () => 1 })
}

/**
 * Which buckets a request counts against. An answer that names no bucket applies to its whole origin. One that names a
 * bucket applies to its path and, until they have their own, to paths with the same prefix.
 */
export class Buckets {
  readonly #slowBelow: number
  readonly #gates: LRUCache<string, Gate>
  readonly #routes: LRUCache<string, readonly string[]>

  constructor({ maxBuckets, slowBelow }: { readonly maxBuckets: number; readonly slowBelow: number }) {
    this.#slowBelow = slowBelow
    this.#gates = lru(maxBuckets)
    this.#routes = lru(maxBuckets * ROUTES_PER_BUCKET)
  }

  /** How many buckets are remembered. */
  get size(): number {
    return this.#gates.size
  }

  /** The gates that a request must pass: that of its origin first, then those of its buckets. */
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

  /** Records the buckets that an answer named for its request. */
  learn({ keys }: Route, names: readonly string[]): void {
    for (const key of keys) this.#routes.set(key, names)
  }
}
