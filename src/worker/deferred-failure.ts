/** BullMQ's reason for a job whose lock expired too often. */
const STALLED = 'job stalled more than allowable limit'
/** The reason written by `lua/shape/job-options.lua`, which cannot format a date. */
const EXPIRED = /^deadline: could not start before (\d+)$/

/** The failure reason of a job that could not start in time. @param deadlineMs since 1970 */
export function deadlineReason(deadlineMs: number): string {
  return `deadline: could not start before ${new Date(deadlineMs).toISOString()}`
}

/**
 * Readable reason of a job that Redis has marked to fail when it is next fetched.
 * @param stalls how often its lock expired while it ran: its worker died or hung
 */
export function deferredReason(failure: string, stalls: number): string {
  if (failure === STALLED) return `poison: worker died ${stalls} ${stalls === 1 ? 'time' : 'times'}`
  const [, deadlineMs] = EXPIRED.exec(failure) ?? []
  return deadlineMs === undefined ? failure : deadlineReason(Number(deadlineMs))
}
