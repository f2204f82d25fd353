import { encodeKey, type LimitKey, ONE_FOR_ALL } from './limit-keys.ts'

const COLON = ':'
/** Longer names are hashed, so that caller input takes no more memory than that. */
const LONGEST = 64

/**
 * The name of a key in this process: the same for all forms of a key, and never that of another key. Cheaper than the
 * name in Redis, because hardly anything is hashed.
 * @throws InvalidKeyError
 */
export function localName(key: LimitKey): string {
  if (typeof key === 'string') {
    if (key.length > LONGEST || key.length === 0) return COLON + encodeKey(key)
    // The parts of an array have colons between them, but none before the first.
    return key.includes(COLON) ? COLON + key : key
  }
  if (key === ONE_FOR_ALL) return COLON
  if (Array.isArray(key) && key.length === 1 && !Array.isArray(key[0])) return localName(key[0] as LimitKey)
  return encodeKey(key)
}

/** A map by local name that drops the oldest entry when it has too many. */
export class LocalTable<T> {
  readonly #entries = new Map<string, T>()
  readonly #most: number
  readonly #onDrop: ((entry: T) => void) | undefined

  constructor(most: number, onDrop?: (entry: T) => void) {
    this.#most = most
    this.#onDrop = onDrop
  }

  get size(): number {
    return this.#entries.size
  }

  get(name: string): T | undefined {
    return this.#entries.get(name)
  }

  /** Makes the entry the newest one. */
  set(name: string, entry: T): void {
    this.delete(name)
    this.#entries.set(name, entry)
    if (this.#entries.size <= this.#most) return
    for (const oldest of this.#entries.keys()) {
      this.delete(oldest)
      return
    }
  }

  delete(name: string): void {
    const entry = this.#entries.get(name)
    if (entry !== undefined && this.#entries.delete(name)) this.#onDrop?.(entry)
  }

  clear(): void {
    for (const name of [...this.#entries.keys()]) this.delete(name)
  }
}
