import { plainJson } from 'sluice/internal'

/**
 * A value as one line of JSON: dates are ISO 8601, Infinity and NaN are null, undefined is left out. Control characters
 * and direction marks are escaped, so that it is safe to show in a terminal.
 */
export function jsonLine(value: unknown): string {
  return plainJson(JSON.stringify(value) ?? 'null')
}
