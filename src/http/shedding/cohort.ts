import { createHash } from 'node:crypto'

/** After so long the callers are shuffled: nobody is always among the first to be turned away. ms */
const SHUFFLE_MS = 3_600_000

/**
 * Where a caller stands among all callers of a class, from 0 to 1: those below the share that is turned away are. A hash,
 * so that every process sees a caller at the same place. (DAGOR, SoCC 2018, §4: users are hashed, anew every hour)
 * @param key undefined: nobody knows the caller; any place, another one each time
 * @param wallMs the wall clock
 */
export function cohortOf(key: string | undefined, wallMs: number): number {
  if (key === undefined) return Math.random()
  const digest = createHash('sha256')
    .update(`${Math.floor(wallMs / SHUFFLE_MS)}:${key}`)
    .digest()
  return digest.readUInt32BE(0) / 2 ** 32
}
