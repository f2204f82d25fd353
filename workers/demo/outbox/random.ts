/** A source of repeatable choices: the same seed gives the same outbox on every machine. */
export interface Random {
  /** A whole number from `from` to `to`, both included. */
  between(from: number, to: number): number
  pick<T>(from: readonly T[]): T
  /** True once in `n` times on average. */
  oneIn(n: number): boolean
  /** `length` lower-case hexadecimal digits. */
  hex(length: number): string
}

/** Builds the source from a whole-number seed (mulberry32: 32 bits of state, plenty for texts). */
export function createRandom(seed: number): Random {
  let state = seed | 0
  const unit = (): number => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const between = (from: number, to: number): number => from + Math.floor(unit() * (to - from + 1))
  return {
    between,
    pick: (from) => {
      if (from.length === 0) throw new RangeError('cannot pick from an empty list')
      return from[between(0, from.length - 1)]!
    },
    oneIn: (n) => between(1, n) === 1,
    hex: (length) => Array.from({ length }, () => between(0, 15).toString(16)).join(''),
  }
}
