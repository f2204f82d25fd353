import { oneLine } from './feedback.ts'

/** A value as part of an error message. */
export function describe(value: unknown): string {
  try {
    return oneLine(JSON.stringify(value) ?? String(value))
  } catch {
    return typeof value
  }
}
