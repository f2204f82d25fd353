import { type JobJson, raw2NextJobData } from 'bullmq'
import type { ShapeIdentity } from '../shape/stored.ts'

/** A job that may start, and when. */
export interface Grant {
  readonly id: string
  /** Its hash, as Redis returned it: field, value, field, … */
  readonly fields: readonly string[]
  /** Its slot: µs on Redis's clock. */
  readonly slotUs: number
  /** Its charge, as text: exact for Redis, not needed here. */
  readonly costUs: string
  /** Its score among the prioritized jobs, '' for a job of the wait list. */
  readonly score: string
  /** Its lock token, '' if the caller gave it. */
  readonly token: string
}

/**
 * BullMQ's tuple with a job that its own script text fetched. Score: among the prioritized jobs, for a job of a group.
 */
export type FetchedTuple = readonly [
  fields: readonly string[],
  id: string,
  limitedMs: number,
  delayedMs: number,
  score?: string,
]

/** Why no more jobs were granted. */
export type Stop = 'full' | 'closed' | 'empty' | 'halted' | 'limited' | 'unshaped'

/** Reply of the scripts that start jobs; the positions are those of `lua/gate/departure.lua`. */
export interface DepartureReply {
  /** Redis lost the shape that was known here; nothing was granted. */
  readonly lost: boolean
  /** Redis's clock, µs. Undefined if the script did not read it. */
  readonly nowUs: number | undefined
  readonly grants: readonly Grant[]
  readonly stop: Stop
  readonly wakeUs: number | undefined
  readonly nextUs: number | undefined
  /** For a limit shared by several queues: the horizon to use when computing when to ask, µs. */
  readonly spanUs: number | undefined
  /** How much sooner than one horizon before its slot to request a job, µs. */
  readonly leadUs: number
  /** Only groups hold the jobs: a new one may depart before the next slot. */
  readonly passable: boolean
  /** When the next delayed job is due, 0 if there is none. */
  readonly delayedMs: number
  readonly limitedMs: number
  /** Redis was restarted or failed over; the bucket was filled (`hold`) or not. */
  readonly loss: { readonly policy: 'hold' | 'burst'; readonly holdMs: number } | undefined
  readonly clockStepUs: number
  /** How often Redis's clock has gone back so far; undefined if the meter was not involved. */
  readonly clockSteps: number | undefined
  readonly foreignJobId: string | undefined
  /** The longest horizon of a worker in the last minute, µs, if it is longer than the caller's. */
  readonly longestHorizonUs: number | undefined
  readonly lastBeforeUs: string
  readonly grantNumber: string
  /** The shape by which the jobs were granted; '' in both parts if there was none. */
  readonly grantedBy: ShapeIdentity
  readonly news: readonly string[] | undefined
}

type Raw = readonly unknown[]

/** Whether a reply, or the result of an end in it, is BullMQ's tuple with the next job. */
export function isFetchedTuple(raw: unknown): raw is FetchedTuple {
  return Array.isArray(raw) && typeof raw[0] === 'object'
}

export function readDeparture(raw: Raw): DepartureReply {
  const notes = (raw[9] as readonly string[] | undefined) ?? []
  const loss = notes[0]
  return {
    lost: raw[0] === -1,
    nowUs: optional(raw[1]),
    grants: ((raw[3] as readonly Raw[] | undefined) ?? []).map(readGrant),
    // If the script did not look for jobs, nothing is known: the worker asks.
    stop: (raw[4] as Stop | undefined) ?? 'full',
    wakeUs: optional(raw[5]),
    nextUs: optional(raw[6]),
    leadUs: Number(raw[13] ?? 0),
    spanUs: optional(raw[14]),
    passable: raw[15] === 1,
    delayedMs: Number(raw[7] ?? 0),
    limitedMs: Number(raw[8] ?? 0),
    loss: loss ? { policy: loss as 'hold' | 'burst', holdMs: Number(notes[1]) / 1000 } : undefined,
    clockStepUs: Number(notes[2] ?? 0),
    clockSteps: optional(notes[6]),
    foreignJobId: notes[3] || undefined,
    longestHorizonUs: optional(notes[7]),
    lastBeforeUs: notes[4] ?? '',
    grantNumber: String(notes[5] ?? ''),
    grantedBy: { id: String(raw[10] ?? ''), revision: String(raw[11] ?? '') },
    news: (raw[12] as readonly string[] | null | undefined) ?? undefined,
  }
}

/** The job of a grant, decoded by BullMQ. */
export function jobOfGrant({ fields, id }: Grant): JobJson {
  return raw2NextJobData([fields, id, 0, 0] as never)[0] as JobJson
}

function readGrant(raw: Raw): Grant {
  const [fields, id, slot, , costUs, score, token] = raw
  return {
    id: id as string,
    fields: fields as string[],
    slotUs: Number(slot),
    costUs: costUs as string,
    score: score as string,
    token: token as string,
  }
}

function optional(value: unknown): number | undefined {
  return value === '' || value === undefined || value === null ? undefined : Number(value)
}
