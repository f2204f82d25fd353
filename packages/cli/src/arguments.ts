import { type Command, InvalidArgumentError, Option } from 'commander'

/**
 * Reads the name of a queue.
 * @throws InvalidArgumentError
 */
export function parseQueueName(text: string): string {
  if (text === '' || /[:\p{Cc}]/u.test(text))
    throw new InvalidArgumentError("expected the name of a queue, without ':'")
  return text
}

/** @throws InvalidArgumentError */
export function parseNonEmpty(text: string): string {
  if (text.trim() === '') throw new InvalidArgumentError('expected a non-empty string')
  return text
}

/** Returns a reader of whole numbers within bounds. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
    if (number >= min && number <= max) return number
    throw new InvalidArgumentError(`expected a whole number from ${min} to ${max}`)
  }
}

/**
 * Reads a time in the future.
 * @throws InvalidArgumentError
 */
export function parseFutureTime(text: string): Date {
  const time = /^\d{4}-\d\d-\d\dT/.test(text) ? new Date(text) : new Date(Number.NaN)
  if (Number.isNaN(time.getTime())) throw new InvalidArgumentError("expected a time such as '2026-01-31T18:00:00Z'")
  if (time.getTime() <= Date.now()) throw new InvalidArgumentError('expected a time in the future')
  return time
}

/** What {@link addReason} reads. */
export interface Reason {
  readonly reason: string
}

/** Every command that changes a queue requires a reason. */
export function addReason(command: Command): Command {
  return command.requiredOption('--reason <text>', 'why, for the history (required)', parseNonEmpty)
}

/** An option for how long a change lasts. */
export function durationOption(flags: string, description: string): Option {
  return new Option(flags, description).argParser(parseDuration)
}

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
