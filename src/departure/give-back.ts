import type { Argument } from '../redis/commands.ts'
import type { HeldJob } from './held-job.ts'

/**
 * The arguments of `lua/give-back.lua`.
 * @param jobs in the order of their slots
 * @param leavingWorkerId of a worker that asks for no more, or '': only such a worker's slots are refunded
 */
export function giveBackArguments(jobs: readonly HeldJob[], leavingWorkerId: string): Argument[] {
  const refundable = leavingWorkerId ? lastGranted(jobs) : []
  return [
    refundable.at(-1)?.grantNumber ?? '',
    refundable.length,
    refundable[0]?.previousSlotUs ?? '',
    leavingWorkerId,
    ...jobs.flatMap(({ id, token, score, costUs }) => [id, token, score, costUs]),
  ]
}

/** Jobs at the end of the list with consecutive slots: no other worker was granted one in between. */
function lastGranted(jobs: readonly HeldJob[]): readonly HeldJob[] {
  let first = jobs.length - 1
  for (; first > 0; first--) {
    const [before, job] = [jobs[first - 1], jobs[first]] as [HeldJob, HeldJob]
    const next = Number(before.grantNumber) + 1 === Number(job.grantNumber)
    if (before.grantNumber !== job.grantNumber && !(next && job.previousSlotUs === String(before.slotUs))) break
  }
  return jobs.slice(Math.max(0, first))
}
