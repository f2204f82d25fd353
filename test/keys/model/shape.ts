import type { LimitRule } from '../../../src/limits/definition.ts'
import type { Rate } from '../../groups/model/charges.ts'

/** A limit of a queue: with `by`, one state for each value of that key or of those keys, else one for all jobs. */
export interface Limit extends LimitRule {
  readonly name: string
  /** `group`, a name in `keys` of jobs, or several of these. */
  readonly by?: string | readonly string[]
  readonly unit?: string
  /** With `by`: what differs, by the tier of a job or of a value. */
  readonly tiers?: Readonly<Record<string, Pick<LimitRule, 'rate' | 'burst'>>>
}

/** What applies to a group. */
export interface GroupSettings {
  readonly rate?: Rate | null
  readonly burst?: number
  readonly concurrency?: number | null
  readonly weight?: number
}

export interface Shape {
  readonly rate?: Rate
  readonly burst?: number
  /** Of all jobs that run. */
  readonly concurrency?: number
  readonly groups?: GroupSettings
  readonly limits?: readonly Limit[]
  /** After which a job counts as one level more important, ms. */
  readonly ageingMs?: number
}

/** What the model has besides lanes. Each builds on the one before it, but places only on lines. */
export interface Features {
  /** Without: a held lane waits for the time of its slot, in no order, and competes again then. */
  readonly lines: boolean
  readonly keep: boolean
  /** Limits with `by` on how many jobs run. */
  readonly places: boolean
  /** The most of its time that a cell is kept for lanes that cannot go yet, 0 to 1. */
  readonly keepBudget: number
}

export const ALL_FEATURES: Features = { lines: true, keep: true, places: true, keepBudget: 0.1 }

/** What a limit counts by, in its order; nothing for one of the queue. */
export function namesBy({ by }: Limit): readonly string[] {
  if (by === undefined) return []
  return typeof by === 'string' ? [by] : by
}

export function isPlaces({ algorithm }: Limit): boolean {
  return algorithm === 'concurrency'
}

/** @throws Error if the features do not have what the shape asks for */
export function checkShape({ limits = [] }: Shape, features: Features): void {
  if ((features.keep || features.places) && !features.lines) throw new Error('keep and places need lines')
  for (const limit of limits) {
    if (!isPlaces(limit)) continue
    if (namesBy(limit).length === 0) throw new Error(`limit ${limit.name}: the queue's own places are its concurrency`)
    if (!features.places) throw new Error(`limit ${limit.name} needs places`)
  }
}
