import { attempt, read } from './read.ts'

const MAX_ERRORS = 16

/**
 * What was thrown and what it was made of: its `cause`, the `errors` of an AggregateError, and theirs, nearest first and
 * each once. At most 16, so that neither a circle nor a chain without end is followed.
 */
export function causesOf(thrown: unknown): readonly unknown[] {
  const found = [thrown]
  for (let i = 0; i < found.length; i++) {
    for (const part of [read(found[i], 'cause'), ...partsOf(found[i])]) {
      if (found.length < MAX_ERRORS && part !== undefined && part !== null && !found.includes(part)) found.push(part)
    }
  }
  return found
}

function partsOf(error: unknown): readonly unknown[] {
  const parts = read(error, 'errors')
  return attempt(() => (Array.isArray(parts) ? parts.slice(0, MAX_ERRORS) : [])) ?? []
}
