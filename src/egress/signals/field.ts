import type { HttpAnswer } from '../answer.ts'

/** No figure and no date of a header is longer: what is longer is not read, and costs no time. */
const MAX_VALUE = 200
/** Lists of policies are; Node itself takes 16 KiB for all fields together unless told otherwise. */
export const MAX_LIST = 8192

/** The value of a field without the space around it; undefined where it is missing, empty or longer than it can be. */
export function field(answer: HttpAnswer, name: string, maxLength = MAX_VALUE): string | undefined {
  const value = answer.headers[name]
  if (value === undefined || value.length > maxLength) return undefined
  return value.trim() || undefined
}

const COUNT = /^\d{1,15}(?:\.\d{1,9})?$/

/**
 * A count, rounded down: Reddit sends '595.0'. Undefined where it is none: negative ones are what Azure sends for "not
 * known".
 */
export function parseCount(text: string | undefined): number | undefined {
  return text !== undefined && COUNT.test(text) ? Math.floor(Number(text)) : undefined
}
