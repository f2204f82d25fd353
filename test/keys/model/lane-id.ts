// Which lane a job is in, and which cells it needs, by its own options alone.
//
// Decisions where the design is silent:
// - a lane's id is its group, then name and value of each key in order of the names, each behind its length in bytes, then the
//   units of limits with a key of which the job takes nothing
// - a cell's id is the name of its limit and its value: of several keys, each behind its length, in the order of `by`
// - jobs without a group count as the group '' where a limit counts by group, as they do under limits per group

import type { Job } from './job.ts'
import { isPlaces, type Limit, namesBy } from './shape.ts'

/** What a job takes of a limit. */
export function costUnder(limit: Limit, { cost, costs }: Job): number {
  const asked = limit.unit === undefined ? cost : (costs?.[limit.unit] ?? 1)
  return isPlaces(limit) ? Math.min(limit.concurrency as number, Math.ceil(asked)) : asked
}

/** The cell of a limit by keys; undefined if the job lacks one of them. */
export function cellIdOf(limit: Limit, job: Job): string | undefined {
  const values = namesBy(limit).map((name) => keyOf(name, job))
  if (values.some((value) => value === undefined)) return undefined
  const value = values.length === 1 ? values[0] : values.map((one) => withLength(one as string)).join('')
  return `${limit.name}:${value}`
}

/** By what lanes are told apart: names of keys, and units. */
export function lanesBy(limits: readonly Limit[]): { readonly names: string[]; readonly units: string[] } {
  const keyed = limits.filter((limit) => namesBy(limit).length > 0)
  const names = [...new Set(keyed.flatMap(namesBy))].filter((name) => name !== 'group').sort()
  // Without keys and places, a group is one lane.
  if (names.length === 0 && !keyed.some(isPlaces)) return { names, units: [] }
  return { names, units: [...new Set(keyed.flatMap(({ unit }) => unit ?? []))].sort() }
}

/** What a job's lane has behind its group: its keys, and the units of which it takes nothing. */
export function partsOf(job: Job, limits: readonly Limit[]): string[] {
  const { names, units } = lanesBy(limits)
  const keys = names.flatMap((name) =>
    job.keys[name] === undefined ? [] : [withLength(name) + withLength(job.keys[name])],
  )
  return [...keys, ...units.filter((unit) => job.costs?.[unit] === 0).map((unit) => `~${withLength(unit)}`)]
}

export function laneId(group: string, parts: readonly string[]): string {
  return withLength(group) + parts.join('')
}

function keyOf(name: string, { group, keys }: Job): string | undefined {
  return name === 'group' ? group : keys[name]
}

function withLength(text: string): string {
  return `${Buffer.byteLength(text)}:${text}`
}
