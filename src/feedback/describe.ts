import { oneLine } from './feedback.ts'

/** What came, in the sentence of an error. */
export function describe(value: unknown): string {
  try {
    return oneLine(JSON.stringify(value) ?? String(value))
  } catch {
    return typeof value
  }
}
