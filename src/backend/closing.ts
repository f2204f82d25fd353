import { withinMs } from '../redis/deadlines.ts'

/**
 * How long a close waits for Redis, ms: longer than it takes to replace a silent connection, shorter than the 30 s
 * after which Kubernetes kills a program.
 */
export const CLOSE_LIMIT_MS = 20_000
/** By then ioredis has destroyed a socket that does not close by itself (`disconnectTimeout`), ms. */
const CUT_MS = 5000

/** Work that a close waits for without a limit. */
interface Work {
  readonly running: number
  /** Resolves once none runs. */
  idle(): Promise<void>
}

/**
 * Waits for a close. If Redis delays it for too long after the work has ended, its connections are cut, which ends it.
 */
export async function closeInTime(closed: Promise<void>, cut: () => void, work?: Work): Promise<void> {
  do {
    await Promise.race([closed, work?.idle()])
    if (await endsWithin(CLOSE_LIMIT_MS, closed)) return
  } while (work && work.running > 0)
  cut()
  await endsWithin(CUT_MS, closed)
}

function endsWithin(ms: number, closed: Promise<void>): Promise<true | undefined> {
  return withinMs(
    ms,
    closed.then(() => true as const),
  )
}
