import type { ShapeIdentity } from '../shape/stored.ts'
import type { DepartureReply, FetchedJob, Grant } from './reply.ts'

/** A job that is held until its slot. */
export interface HeldJob extends Grant {
  /** Its lock token. */
  readonly token: string
  /** Order among jobs of the same slot: the smaller one goes first. */
  readonly place: number
  /** The grant it came with, needed for a refund. */
  readonly grantNumber: string
  /** The slot before it, µs. */
  readonly previousSlotUs: string
  /** The shape by which it was granted; '' in both parts if unknown. */
  readonly grantedBy: ShapeIdentity
  /** Nothing holds it, so it cannot be late either. */
  readonly due?: true
}

/** The jobs of a reply, to be held or started. */
export function heldJobs({ grants, grantNumber, lastBeforeUs, grantedBy }: DepartureReply, token: string): HeldJob[] {
  const slotBefore = (i: number) => (i === 0 ? lastBeforeUs : String((grants[i - 1] as Grant).slotUs))
  return grants.map((grant, i) => ({
    ...grant,
    token: grant.token || token,
    place: i,
    grantNumber,
    previousSlotUs: slotBefore(i),
    grantedBy,
  }))
}

/**
 * A job that departs when it is fetched, and has no slot to refund.
 * @param place below 0, because jobs granted after it by the same call may have the same slot
 * @param free nothing may hold it, not even limits
 */
export function unheldJob([fields, id]: FetchedJob, slotUs: number, place: number, free: boolean): HeldJob {
  const grant = { id, fields, slotUs, place, costUs: '0', score: '', token: '' }
  const job = { ...grant, grantNumber: '', previousSlotUs: '', grantedBy: { born: '', rev: '' } }
  return free ? { ...job, due: true } : job
}

/** In the order in which they were granted. */
export function inOrder(jobs: readonly HeldJob[]): HeldJob[] {
  return [...jobs].sort((one, other) => one.slotUs - other.slotUs || one.place - other.place)
}
