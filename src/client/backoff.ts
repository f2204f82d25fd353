export interface Backoff {
  /** ms */
  readonly baseMs: number
  /** ms */
  readonly capMs: number
}

/**
 * Full jitter: anything between nothing and `min(cap, base × 2^attempt)`, attempts counted from 0. (AWS Architecture Blog,
 * "Exponential Backoff And Jitter")
 * @param random at least 0, below 1
 */
export function fullJitterMs({ baseMs, capMs }: Backoff, attempt: number, random: number): number {
  return random * Math.min(capMs, baseMs * 2 ** attempt)
}
