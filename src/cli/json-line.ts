import { plainJson } from '../plain-text.ts'

/**
 * A value as one line of JSON: dates are ISO 8601, Infinity and what is no number are null, undefined is left out.
 * Control characters and marks of direction are escaped, so that a terminal may show it.
 */
export function jsonLine(value: unknown): string {
  return plainJson(JSON.stringify(value) ?? 'null')
}
