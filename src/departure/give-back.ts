import type { Argument } from '../redis/commands.ts'
import type { HeldJob } from './held-job.ts'

/**
 * Gives jobs back, in as many calls of `lua/verbs/give-back.lua` as needed, one after another. The first jobs come
 * first: whatever happens in between, other workers fetch them in their order.
 * @param jobs in the order of their slots
 * @param leavingWorkerId of a worker that asks for no more, or '': only such a worker's slots are refunded
 * @param most how many jobs go into a call
 */
export async function giveBack(
  jobs: readonly HeldJob[],
  leavingWorkerId: string,
  most: number,
  send: (args: readonly Argument[]) => Promise<unknown>,
): Promise<void> {
  let isRefunded = false
  for (let from = 0; from === 0 || from < jobs.length; from += most) {
    const args = giveBackArguments(jobs, leavingWorkerId, { from, to: from + most, isRefunded })
    const [, refunded] = (await send(args)) as [number, number]
    isRefunded ||= refunded === 1
  }
}

/**
 * The arguments of `lua/verbs/give-back.lua`.
 * @param part which of the jobs, and whether the first part has certainly refunded the slots
 */
export function giveBackArguments(
  jobs: readonly HeldJob[],
  leavingWorkerId: string,
  part = { from: 0, to: jobs.length, isRefunded: false },
): Argument[] {
  // With the first call: later, other workers have woken up and asked for slots.
  const refundable = leavingWorkerId && part.from === 0 ? lastGranted(jobs) : []
  const ahead = jobs.slice(0, part.from).findLast(({ score }) => score === '')
  return [
    refundable.at(-1)?.grantNumber ?? '',
    refundable.reduce((sumUs, { costUs }) => sumUs + Number(costUs), 0),
    refundable[0]?.previousSlotUs ?? '',
    leavingWorkerId,
    ahead?.id ?? '',
    leavingWorkerId && part.from > 0 ? Number(part.isRefunded) : '',
    ...jobs.slice(part.from, part.to).flatMap(({ id, token, score }) => [id, token, score]),
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
