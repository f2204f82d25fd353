import { partOfKey, SPREAD_PARTS } from '../../../src/limits/spread-keys.ts'
import { times } from './limiters.ts'

const TRIED = times(SPREAD_PARTS * 100, (i) => `user-${i}`)

/** A key of each part of a spread limit, in the order of the parts. */
export const KEY_OF_PART: readonly string[] = times(SPREAD_PARTS, (part) => {
  const found = TRIED.find((key) => partOfKey(key) === part)
  if (found === undefined) throw new Error(`none of ${TRIED.length} keys is of part ${part}`)
  return found
})
