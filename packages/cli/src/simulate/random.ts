/** Pseudo-random numbers, the same for the same seed. */
export interface Random {
  /** From 0 to below 1. */
  uniform(): number
  /** Exponential with mean 1. */
  exponential(): number
  /** Geometric from 1 on, with that mean (> 1). */
  geometric(mean: number): number
}

/** The generator is Tommy Ettinger's mulberry32 (public domain). @param seed a whole number */
export function randomOf(seed: number): Random {
  let state = seed | 0
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  return {
    uniform,
    exponential: () => -Math.log(1 - uniform()),
    geometric: (mean) => 1 + Math.floor(Math.log(1 - uniform()) / Math.log(1 - 1 / mean)),
  }
}
