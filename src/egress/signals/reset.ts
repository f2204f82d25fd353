import { parseHttpDate, parseRfc3339 } from './instant.ts'

/** A reset further away is a mistake (ms): 366 days. */
const MAX_RESET_MS = 31_622_400_000

const NUMBER = /^\d{1,20}(?:\.\d{1,9})?$/
/**
 * From each of these on, a number is an instant, in ns, µs, ms or s (`perMs` of them per ms). Below the last it is a
 * duration in s.
 */
const EPOCHS: readonly [from: number, perMs: number][] = [
  [1e17, 1e6],
  [1e14, 1e3],
  [1e11, 1],
  [1e9, 1e-3],
]

const UNITS_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
}
const STEPS = /(\d{1,15}(?:\.\d{1,9})?)(ns|us|µs|μs|ms|s|m|h|d)/g

/**
 * ms until a reset, in any of these forms: seconds, an instant as a number of s, ms, µs or ns since 1970, a Go duration
 * such as '6m0s' or '12ms', a date of RFC 3339 or of HTTP. Past ones are 0; undefined for any other form. A number from
 * 1e9 on is an instant: as a duration it would be 31 years.
 * @param peerNowMs instants are measured against the downstream's own clock
 */
export function parseReset(text: string | undefined, peerNowMs: number): number | undefined {
  if (text === undefined) return undefined
  const lengthMs = numberMs(text, peerNowMs) ?? parseDuration(text) ?? dateMs(text, peerNowMs)
  return lengthMs === undefined ? undefined : clampReset(lengthMs)
}

/** A duration of Go's `time.Duration` in ms, or undefined: '1h2m3.5s'. */
export function parseDuration(text: string): number | undefined {
  let sum = 0
  let end = 0
  for (const { 0: step, 1: count, 2: unit, index } of text.matchAll(STEPS)) {
    if (index !== end) return undefined
    end += step.length
    sum += Number(count) * (UNITS_MS[unit as string] as number)
  }
  return end > 0 && end === text.length ? sum : undefined
}

/** Whole ms, rounded up, between 0 and 366 days. */
export function clampReset(ms: number): number {
  return Math.min(Math.max(Math.ceil(ms), 0), MAX_RESET_MS)
}

function numberMs(text: string, peerNowMs: number): number | undefined {
  if (!NUMBER.test(text)) return undefined
  const number = Number(text)
  const epoch = EPOCHS.find(([from]) => number >= from)
  return epoch ? number / epoch[1] - peerNowMs : number * 1000
}

function dateMs(text: string, peerNowMs: number): number | undefined {
  const instant = parseRfc3339(text) ?? parseHttpDate(text, peerNowMs)
  return instant === undefined ? undefined : instant - peerNowMs
}
