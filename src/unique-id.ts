import { randomFillSync } from 'node:crypto'
import { ulid } from 'ulid'

/** Random bytes are drawn in bulk: one draw for each of an id's sixteen characters would cost more than the job. */
const pool = new Uint8Array(4096)
let used = pool.length

function random(): number {
  if (used === pool.length) {
    randomFillSync(pool)
    used = 0
  }
  return (pool[used++] as number) / 256
}

/** An id that nobody else makes, and that sorts by the time it was made: a ULID. */
export function uniqueId(): string {
  return ulid(undefined, random)
}
