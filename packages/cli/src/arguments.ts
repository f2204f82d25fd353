import { type Command, InvalidArgumentError, Option } from 'commander'
import { parseDuration } from './duration.ts'

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

/** Every command that changes a queue requires a reason. */
export function addReason(command: Command): Command {
  return command.requiredOption('--reason <text>', 'why, for the history (required)', parseNonEmpty)
}

/** An option for how long a change lasts. */
export function durationOption(flags: string, description: string): Option {
  return new Option(flags, description).argParser(parseDuration)
}
