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

/** A duration for display: at most two units, `—` for undefined. */
export function formatDuration(ms: number | undefined): string {
  if (ms === undefined) return '—'
  if (ms < 0) return `-${formatDuration(-ms)}`
  if (ms < 1000) return `${ms < 10 && ms > 0 ? Number(ms.toFixed(1)) : Math.round(ms)}ms`
  if (ms < 60_000) return `${Number((ms / 1000).toFixed(ms < 10_000 ? 2 : 1))}s`
  const seconds = Math.round(ms / 1000)
  if (seconds < 3600) return join(Math.floor(seconds / 60), 'm', seconds % 60, 's')
  const minutes = Math.round(seconds / 60)
  if (minutes < 1440) return join(Math.floor(minutes / 60), 'h', minutes % 60, 'm')
  const hours = Math.round(minutes / 60)
  return join(Math.floor(hours / 24), 'd', hours % 24, 'h')
}

function join(many: number, unit: string, few: number, small: string): string {
  return few === 0 ? `${many}${unit}` : `${many}${unit}${few}${small}`
}
