import { didYouMean } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'

/** Thrown for a rule or a profile that cannot work: names the field, the expected value and the given one. */
export class InvalidRuleError extends InvalidInputError {}

/** @throws InvalidRuleError always */
export function refuse(path: string, expected: string, came: unknown): never {
  throw new InvalidRuleError(`${path} must be ${expected}; got ${describe(came)}`)
}

/**
 * Checks that a value is an object with no fields other than these.
 * @throws InvalidRuleError
 */
export function checkFields(path: string, value: unknown, fields: readonly string[]): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    refuse(path, `an object with ${fields.join(', ')}`, value)
  }
  const unknown = Object.keys(value).find((field) => !fields.includes(field))
  if (unknown === undefined) return
  throw new InvalidRuleError(
    `${path} has no field '${unknown}'; it has ${fields.join(', ')}${didYouMean(unknown, fields)}`,
  )
}

/** Formats a value for a message: JSON, with regular expressions as they are written. */
export function describe(value: unknown): string {
  try {
    return JSON.stringify(value, (_, part) => (part instanceof RegExp ? String(part) : part)) ?? String(value)
  } catch {
    return String(value)
  }
}
