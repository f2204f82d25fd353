/** A value as one line of JSON: dates are ISO 8601, Infinity and what is no number are null, undefined is left out. */
export function jsonLine(value: unknown): string {
  return JSON.stringify(value) ?? 'null'
}
