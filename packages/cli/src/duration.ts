import { InvalidArgumentError } from 'commander'

const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
}

const PART = /\s*(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d)/gy
const EXPECTED = "expected a duration such as '90s', '10m' or '1h30m' (units ms, s, m, h, d)"

/**
 * Reads a duration, ms.
 * @throws InvalidArgumentError, which commander reports
 */
export function parseDuration(text: string): number {
  const compact = text.trim().toLowerCase()
  let ms = 0
  let end = 0
  for (const [part, count, unit] of compact.matchAll(PART)) {
    ms += Number(count) * (UNITS_MS[unit as string] as number)
    end += part.length
  }
  if (end === 0 || end !== compact.length) throw new InvalidArgumentError(EXPECTED)
  const whole = Math.round(ms)
  if (whole < 1 || !Number.isSafeInteger(whole)) throw new InvalidArgumentError(EXPECTED)
  return whole
}
