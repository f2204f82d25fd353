// Which lane a job is in, and which cells it needs, by its own options alone.
//
// Decisions where the design is silent:
// - the length in a part of a lane's id is that of `name=value` in bytes; parts are in order of the names, then `~limit`
//   in order of the limits' names
// - a cell's id is the name of its limit and the values in the order of `by`, each behind its length in bytes
// - jobs without a group count as the group '' where a limit counts by group, as they do under limits per group

import { createHash } from 'node:crypto'
import type { Job } from './job.ts'
import { isPlaces, type Limit, namesBy } from './shape.ts'

const SEPARATOR = '\x1f'
/** Longer ids are hashed, bytes. */
const MOST_BYTES = 200

/** What a job takes of a limit. */
export function costUnder(limit: Limit, { cost, costs }: Job): number {
  const asked = limit.unit === undefined ? cost : (costs?.[limit.unit] ?? 1)
  return isPlaces(limit) ? Math.min(limit.concurrency as number, Math.ceil(asked)) : asked
}

/** The cell of a limit by keys; undefined if the job lacks one of them. */
export function cellIdOf(limit: Limit, job: Job): string | undefined {
  const values = namesBy(limit).map((name) => keyOf(name, job))
  if (values.some((value) => value === undefined)) return undefined
  return [limit.name, ...values.map((value) => withLength(value as string))].join(SEPARATOR)
}

/** What a job's lane has behind its group: its keys, and the limits of which it takes nothing. */
export function partsOf(job: Job, limits: readonly Limit[]): string[] {
  const keyed = limits.filter((limit) => namesBy(limit).length > 0)
  const names = [...new Set(keyed.flatMap(namesBy))].filter((name) => name !== 'group').sort()
  const keys = names.flatMap((name) => (job.keys[name] === undefined ? [] : [withLength(`${name}=${job.keys[name]}`)]))
  const free = keyed.filter((limit) => cellIdOf(limit, job) !== undefined && costUnder(limit, job) === 0)
  return [...keys, ...free.map(({ name }) => `~${name}`).sort()]
}

export function laneId(group: string, parts: readonly string[]): string {
  const id = [group, ...parts].join(SEPARATOR)
  return Buffer.byteLength(id) > MOST_BYTES ? `#${createHash('sha1').update(id).digest('hex')}` : id
}

function keyOf(name: string, { group, keys }: Job): string | undefined {
  return name === 'group' ? group : keys[name]
}

function withLength(text: string): string {
  return `${Buffer.byteLength(text)}:${text}`
}
