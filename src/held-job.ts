import type { DepartureReply, FetchedJob, Grant } from './departure-reply.ts'
import type { ShapeIdentity } from './stored-shape.ts'

/** A job that is held until its slot. */
export interface HeldJob extends Grant {
  /** Its lock token. */
  readonly token: string
  /** The grant it came with, for a refund. */
  readonly grantNumber: string
  /** The slot before it, µs. */
  readonly previousSlotUs: string
  /** The shape by which it was granted; its parts are '' where that is not known. */
  readonly grantedBy: ShapeIdentity
  /** Nothing holds it, so that it can not be late either. */
  readonly due?: true
}

/** The jobs of a reply, to be held or started. */
export function heldJobs({ grants, grantNumber, lastBeforeUs, grantedBy }: DepartureReply, token: string): HeldJob[] {
  const slotBefore = (i: number) => (i === 0 ? lastBeforeUs : String((grants[i - 1] as Grant).slotUs))
  return grants.map((grant, i) => ({
    ...grant,
    token: grant.token || token,
    grantNumber,
    previousSlotUs: slotBefore(i),
    grantedBy,
  }))
}

/**
 * A job that departs when it is fetched, and has no slot to refund.
 * @param free nothing may hold it, limits neither
 */
export function unheldJob([fields, id]: FetchedJob, slotUs: number, free: boolean): HeldJob {
  const grant = { id, fields, slotUs, costUs: '0', score: '', token: '' }
  const job = { ...grant, grantNumber: '', previousSlotUs: '', grantedBy: { born: '', rev: '' } }
  return free ? { ...job, due: true } : job
}
