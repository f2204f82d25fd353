import { attempt, read } from './read.ts'

const MAX_ERRORS = 16

/**
 * The thrown value and its parts: its `cause`, the `errors` of an AggregateError, and theirs, nearest first and each
 * once. At most 16, so that neither a cycle nor an endless chain is followed.
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
