import type { ShapeIdentity } from '../shape/stored.ts'
import type { DepartureReply, FetchedTuple, Grant } from './reply.ts'

/** A job that is held until its slot. */
export interface HeldJob extends Grant {
  /** Order among jobs of the same slot: the smaller one goes first. */
  readonly place: number
  /** The grant it came with, needed for a refund. */
  readonly grantNumber: string
  /** The slot before it, µs. */
  readonly previousSlotUs: string
  /** The shape by which it was granted; '' in both parts if unknown. */
  readonly grantedBy: ShapeIdentity
  /** Nothing holds it, so it cannot be late either. */
  readonly due: boolean
  /** When its batch was complete, µs on Redis's clock: it is late from then on. Undefined if it is in none. */
  readonly gatheredUs?: number
}

/** The jobs of a reply, to hold or to start. */
export function heldJobs({ grants, grantNumber, lastBeforeUs, grantedBy }: DepartureReply): HeldJob[] {
  const slotBefore = (i: number) => (i === 0 ? lastBeforeUs : String((grants[i - 1] as Grant).slotUs))
  return grants.map((grant, i) => ({
    ...grant,
    place: i,
    grantNumber,
    previousSlotUs: slotBefore(i),
    grantedBy,
    due: false,
  }))
}

/** For a job that came without a grant. */
const NO_SHAPE: ShapeIdentity = { id: '', revision: '' }

/**
 * A job that departs when it is fetched, and has no slot to refund.
 * @param place negative, because jobs granted after it by the same call may have the same slot
 * @param due nothing may hold it, not even limits
 */
export function departedJob(
  [fields, id, , , score = '']: FetchedTuple,
  token: string,
  slotUs: number,
  place: number,
  due: boolean,
): HeldJob {
  return {
    id,
    fields,
    slotUs,
    costUs: '0',
    score,
    token,
    place,
    grantNumber: '',
    previousSlotUs: '',
    grantedBy: NO_SHAPE,
    due,
  }
}

/**
 * Until when a job may start although it is late, µs on Redis's clock: only windows hold it, and until then it counts
 * in the ones that charged it. Undefined if it has to start at its slot.
 */
export function startByOf(job: HeldJob): number | undefined {
  const [, text] = chargedOf(job)
  return text ? Number(text) : undefined
}

/** The pool members with which a job departs, by the names of their limits; undefined if it has none. */
export function membersOf(job: HeldJob): Readonly<Record<string, string>> | undefined {
  const [, , slot, members] = chargedOf(job)
  // Another slot belongs to a departure under earlier limits.
  return members === undefined || Number(slot) !== job.slotUs ? undefined : JSON.parse(members)
}

/** The counterpart of `lua/limits/charged.lua`. */
function chargedOf({ fields }: HeldJob): string[] {
  // A value may be the same text.
  let at = fields.indexOf('charged')
  while (at % 2 === 1) at = fields.indexOf('charged', at + 1)
  return at < 0 ? [] : (fields[at + 1] as string).split(' ')
}

/** In the order in which they were granted. */
export function inOrder(jobs: readonly HeldJob[]): HeldJob[] {
  return [...jobs].sort((one, other) => one.slotUs - other.slotUs || one.place - other.place)
}
