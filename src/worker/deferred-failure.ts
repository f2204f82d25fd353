/** BullMQ's words for a job whose lock ran out too often. */
const STALLED = 'job stalled more than allowable limit'
/** The words of `lua/lib/job.lua`, which can not write a date. */
const EXPIRED = /^deadline: could not start before (\d+)$/

/** The reason of a job that could not start in time. @param deadlineMs since 1970 */
export function deadlineReason(deadlineMs: number): string {
  return `deadline: could not start before ${new Date(deadlineMs).toISOString()}`
}

/**
 * Why a job fails that Redis has marked to fail when it is next taken, in words for people.
 * @param stalls how often its lock ran out while it was taken: its worker died, or was as good as dead
 */
export function deferredReason(failure: string, stalls: number): string {
  if (failure === STALLED) return `poison: worker died ${stalls} ${stalls === 1 ? 'time' : 'times'}`
  const [, deadlineMs] = EXPIRED.exec(failure) ?? []
  return deadlineMs === undefined ? failure : deadlineReason(Number(deadlineMs))
}
