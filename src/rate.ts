import { InvalidRateError } from './errors.ts'

/** A drain rate: `'50/s'`, `'1000/min'`, `'100/15min'`, `'10000/day'`, or units of cost per period in ms. A month is 30 days. */
export type RateInput = string | { readonly limit: number; readonly period: number }

export interface Rate {
  /** Units of cost per period. */
  readonly limit: number
  readonly periodMs: number
}

const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  sec: 1000,
  second: 1000,
  min: 60_000,
  minute: 60_000,
  h: 3_600_000,
  hour: 3_600_000,
  d: 86_400_000,
  day: 86_400_000,
  week: 604_800_000,
  // Windows of the calendar have their real length.
  month: 2_592_000_000,
}

/** Two numbers, as `\d+(\.\d+)?(e[+-]?\d+)?`, the second of them optional, and a unit. */
const FORM = /^(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*\/\s*(?:(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*)?([a-z]+)$/
const EXPECTED =
  "'50/s', '1000/min', '100/15min', '10000/day' (units ms, s, min, h, day, week, month) or { limit: 50, period: 1000 } with period in ms"

/**
 * Parses a rate.
 * @throws InvalidRateError naming the expected and the given value
 */
export function parseRate(input: RateInput): Rate {
  const rate = typeof input === 'string' ? parseText(input) : parseObject(input)
  if (!rate || !(rate.limit > 0) || !(rate.periodMs > 0) || !isUsable(intervalUs(rate))) {
    const hint = rate?.limit === 0 ? '. To let nothing pass, pause the queue or the group, or block the key' : ''
    throw new InvalidRateError(`rate must be ${EXPECTED}; got ${describe(input)}${hint}`)
  }
  return rate
}

/** The emission interval I in microseconds per unit of cost, not rounded. */
export function intervalUs(rate: Rate): number {
  checkParsed(rate)
  return (rate.periodMs * 1000) / rate.limit
}

/** The emission interval as scripts have it: rounded up to 1/1024 µs, so that no sum exceeds the rate. */
export function gridIntervalUs(limit: number, periodMs: number): number {
  return Math.ceil(((periodMs * 1000) / limit) * 1024) / 1024
}

/** Neither 0 nor infinite after rounding to a double. */
function isUsable(interval: number): boolean {
  return interval > 0 && Number.isFinite(interval)
}

/** Units per second of a rate as text, including a rate that lets nothing depart. */
export function unitsPerSecond(rate: string): number {
  if (rate.startsWith('0/')) return 0
  const { limit, periodMs } = parseRate(rate)
  return (limit / periodMs) * 1000
}

/** Formats a rate for {@link parseRate}, in the largest unit that fits. */
export function formatRate(rate: Rate): string {
  checkParsed(rate)
  const { limit, periodMs } = rate
  const named = (['month', 'week'] as const).find((unit) => UNITS_MS[unit] === periodMs)
  if (named) return `${limit}/${named}`
  for (const unit of ['day', 'h', 'min', 's'] as const) {
    const count = periodMs / (UNITS_MS[unit] as number)
    if (Number.isInteger(count)) return `${limit}/${count === 1 ? '' : count}${unit}`
  }
  return `${limit}/${periodMs}ms`
}

function checkParsed(rate: unknown): void {
  const { limit, periodMs } = (rate ?? {}) as { readonly limit?: unknown; readonly periodMs?: unknown }
  if (typeof limit === 'number' && typeof periodMs === 'number') return
  throw new InvalidRateError(`a parsed rate must be { limit, periodMs }, as from parseRate; got ${describe(rate)}`)
}

function parseText(text: string): Rate | undefined {
  const [, limit, count, unit] = FORM.exec(text.trim().toLowerCase()) ?? []
  const unitMs = unit === undefined ? undefined : UNITS_MS[unit]
  if (limit === undefined || unitMs === undefined) return undefined
  return { limit: Number(limit), periodMs: Number(count ?? 1) * unitMs }
}

function parseObject(input: unknown): Rate | undefined {
  if (typeof input !== 'object' || input === null) return undefined
  const { limit, period } = input as { limit?: unknown; period?: unknown }
  if (typeof limit !== 'number' || typeof period !== 'number') return undefined
  return Number.isFinite(limit) && Number.isFinite(period) ? { limit, periodMs: period } : undefined
}

function describe(input: unknown): string {
  if (typeof input === 'string') return `'${input}'`
  try {
    return JSON.stringify(input) ?? String(input)
  } catch {
    return String(input)
  }
}
