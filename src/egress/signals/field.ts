import type { HttpAnswer } from '../answer.ts'

/** No number and no date in a header is longer: a longer value is not read, and costs no time. */
const MAX_VALUE = 200
/** Lists of policies are longer; Node itself accepts 16 KiB for all fields together by default. */
export const MAX_LIST = 8192

/** The value of a field without the surrounding space; undefined if it is missing, empty or too long. */
export function field(answer: HttpAnswer, name: string, maxLength = MAX_VALUE): string | undefined {
  const value = answer.headers[name]
  if (value === undefined || value.length > maxLength) return undefined
  return value.trim() || undefined
}

const COUNT = /^\d{1,15}(?:\.\d{1,9})?$/

/**
 * A count, rounded down: Reddit sends '595.0'. Undefined for anything else: Azure sends negative ones for "not known".
 */
export function parseCount(text: string | undefined): number | undefined {
  return text !== undefined && COUNT.test(text) ? Math.floor(Number(text)) : undefined
}
