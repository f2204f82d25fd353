import {
  type GroupCounts,
  type GroupRowView,
  type GroupState,
  type GroupView,
  groupStateOf,
  readEntries,
  STATES,
  type StoredEntry,
} from '../queue/groups.ts'
import { ageMs } from '../queue/meter-state.ts'
import { decodeGroups, GROUP_FIELDS, type GroupDefaults, type GroupOverride } from '../shape/groups.ts'
import type { BatchClient } from './batch.ts'
import { type GroupHolder, groupHolders } from './group-holders.ts'
import { type JobRow, readRows } from './jobs.ts'
import { listOf, readView } from './view.ts'

export type { GroupCounts } from '../queue/groups.ts'

/** A group as it stands beside the others. */
export interface GroupRow extends GroupState {
  /** For how long its next job has been ready to leave, ms; undefined where it has none. */
  readonly headAgeMs: number | undefined
  /** Its part of the waiting jobs of all groups, 0 to 1. */
  readonly share: number
}

/** The groups of a queue that are worth a look. */
export interface GroupsView {
  readonly at: Date
  readonly counts: GroupCounts
  /** Waiting jobs of all groups. */
  readonly waiting: number
  /** Those whose next job has been ready longest. */
  readonly oldest: readonly GroupRow[]
  /** Those with the most waiting jobs: looked for among 100 jobs spaced over all that wait, so one may be missed. */
  readonly largest: readonly GroupRow[]
  /** Those held by their rate, their running jobs or a pause; of each kind the first that are due. */
  readonly held: readonly GroupRow[]
}

/** One group, and its next jobs. */
export interface GroupDetail extends GroupRow {
  readonly jobs: readonly JobRow[]
  /** The jobs that hold its places, at most 20, where all of these are taken (`maxed`); else none. */
  readonly holders: readonly GroupHolder[]
}

/** What `lua/views/group.lua` returns for a queue. */
interface ManyGroups {
  readonly at: string
  /** The defaults, as stored. */
  readonly groups: string
  readonly counts: GroupCounts
  readonly waiting: number
  /** `list`: that of the held ones in which it was found. */
  readonly rows: readonly (GroupRowView & { readonly list?: string })[]
}

/** @param count how many groups of each kind; undefined for a queue whose shape has no groups */
export async function groupsOf(redis: BatchClient, base: string, count: number): Promise<GroupsView | undefined> {
  const view = await readView<ManyGroups>(redis, base, 'groups', { count })
  if (!view) return undefined
  const defaults = decodeGroups(view.groups)
  const { waiting } = view
  const found = listOf(view.rows)
  const rows = found.map((row) => rowOf(row, defaults, waiting))
  const isHeld = ({ status }: GroupRow) => status !== 'waiting' && status !== 'idle'
  const top = (by: (row: GroupRow) => number) => rows.toSorted((one, other) => by(other) - by(one)).slice(0, count)
  return {
    at: new Date(Number(view.at) / 1000),
    counts: countsAsSeen(view.counts, rows, {
      counted: new Map(found.map(({ id, list }) => [id, list])),
      listed: count,
    }),
    waiting,
    oldest: top((row) => row.headAgeMs ?? 0),
    largest: top((row) => row.waiting),
    held: rows.filter(isHeld).slice(0, 3 * count),
  }
}

/**
 * A group changes its list only when jobs are asked for: one that was paused since is still in line. The counts are
 * those of the rows that are shown.
 * @param listing by which held list a group was found, and how many of each list were read
 */
function countsAsSeen(
  counts: GroupCounts,
  rows: readonly GroupRow[],
  { counted, listed }: { readonly counted: ReadonlyMap<string, string | undefined>; readonly listed: number },
): GroupCounts {
  const seen: Record<keyof GroupCounts, number> = { ...counts }
  for (const { id, status } of rows) {
    const list = counted.get(id)
    const was = (['limited', 'maxed', 'paused'] as const).find((held) => STATES[held] === list) ?? 'waiting'
    const mayBeListed = was === 'waiting' && status !== 'idle' && counts[status as keyof GroupCounts] > listed
    if (status === was || mayBeListed) continue
    seen[was] = Math.max(0, seen[was] - 1)
    if (status !== 'idle') seen[status] += 1
  }
  return seen
}

/** @returns undefined for a queue whose shape has no groups */
export async function groupDetail(
  redis: BatchClient,
  base: string,
  id: string,
  count: number,
): Promise<GroupDetail | undefined> {
  const view = await readView<OneGroup>(redis, base, 'group', { group: id, count })
  if (!view) return undefined
  const row = rowOf(view.row, decodeGroups(view.groups), view.waiting)
  const places = listOf(view.jobs).map((jobId) => ({ base, id: jobId }))
  const [jobs, holders] = await Promise.all([
    readRows(redis, places),
    row.status === 'maxed' ? groupHolders(redis, base, id, row.at.getTime()) : [],
  ])
  return { ...row, jobs, holders }
}

/** The same of one, with the ids of its first jobs and the waiting jobs of all groups. */
interface OneGroup extends GroupView {
  readonly jobs: readonly string[]
  readonly waiting: number
}

/** All that is set for groups and is in force, by their ids. */
export async function groupSettingsOf(
  redis: BatchClient,
  base: string,
): Promise<Readonly<Record<string, GroupState['overrides']>>> {
  const { at, settings } = (await readView<GroupSettings>(redis, base, 'settings', {})) as GroupSettings
  const set = Object.entries(settings).map(([id, text]) => {
    const { fields } = JSON.parse(text) as { fields: Record<string, StoredEntry> }
    return [id, readEntries(fields, Number(at) / 1000)] as const
  })
  return Object.fromEntries(set.filter(([, entries]) => Object.keys(entries).length > 0))
}

interface GroupSettings {
  readonly at: string
  /** By group, as stored. */
  readonly settings: Readonly<Record<string, string>>
}

/** What is set for one value of a limit. */
export interface LimitSettings {
  readonly limit: string
  /** The value of each key that the limit counts by. */
  readonly keys: Readonly<Record<string, string>>
  readonly overrides: GroupState['overrides']
}

/** The values of limits with `by` for which most lanes wait: the jobs of a group with equal keys are one lane. */
export interface LimitValuesView {
  readonly at: Date
  /** The most first. Of more than 100 values, 100 by chance are looked at. */
  readonly rows: readonly LimitValueRow[]
  /** How many values lanes wait for. */
  readonly values: number
  /** How many lanes wait for the values without a row; of more than 100 values, an estimate. */
  readonly otherLanes: number
}

export interface LimitValueRow {
  readonly limit: string
  /** The value of each key that the limit counts by. */
  readonly keys: Readonly<Record<string, string>>
  /** Lanes that wait for it, or for another limit before. */
  readonly waitingLanes: number
}

/** @returns undefined for a queue without limits by keys */
export async function limitValuesOf(
  redis: BatchClient,
  base: string,
  count: number,
): Promise<LimitValuesView | undefined> {
  type Row = Omit<LimitValueRow, 'waitingLanes'> & { readonly lanes: number }
  type View = { readonly at: string; readonly rows: readonly Row[]; readonly values: number; readonly others: number }
  const view = await readView<View>(redis, base, 'limit values', { count })
  if (!view) return undefined
  const rows = listOf(view.rows).map(({ limit, keys, lanes }) => ({ limit, keys, waitingLanes: lanes }))
  return { at: new Date(Number(view.at) / 1000), rows, values: view.values, otherLanes: view.others }
}

/** Those of a queue in shards, each of which has other groups. */
export function wholeLimitValues(
  views: readonly (LimitValuesView | undefined)[],
  count: number,
): LimitValuesView | undefined {
  const found = views.filter((view) => view !== undefined)
  const [first] = found
  if (!first) return undefined
  const rows = found.flatMap((view) => view.rows).sort((one, other) => other.waitingLanes - one.waitingLanes)
  const sum = (of: (view: LimitValuesView) => number) => found.reduce((total, view) => total + of(view), 0)
  const left = rows.slice(count).reduce((total, { waitingLanes }) => total + waitingLanes, 0)
  return {
    ...{ at: first.at, rows: rows.slice(0, count) },
    ...{ values: sum(({ values }) => values), otherLanes: left + sum(({ otherLanes }) => otherLanes) },
  }
}

/** All that is set for values of limits and is in force, in the order of limits and values. */
export async function limitSettingsOf(redis: BatchClient, base: string): Promise<readonly LimitSettings[]> {
  const view = await readView<{ readonly at: string; readonly own: unknown }>(redis, base, 'own limits', {})
  // Lua has one empty table for lists and objects.
  const own = Array.isArray(view?.own) ? (view.own as readonly (readonly [string, string])[]) : []
  const all = own.map(([limit, text]) => {
    const { keys, fields } = JSON.parse(text) as Pick<LimitSettings, 'keys'> & { fields: Record<string, StoredEntry> }
    return { limit, keys, overrides: readEntries(fields, Number(view?.at) / 1000) }
  })
  const order = ({ limit, keys }: LimitSettings) => [limit, ...Object.values(keys)].join(' ')
  return all
    .filter(({ overrides }) => Object.keys(overrides).length > 0)
    .sort((one, other) => (order(one) < order(other) ? -1 : 1))
}

/** Of what is set for groups: the fields that `setGroup` takes. */
export function groupOverridesIn(
  settings: Readonly<Record<string, GroupState['overrides']>>,
): Readonly<Record<string, GroupOverride>> {
  const set = Object.entries(settings).map(([id, entries]) => {
    const fields = GROUP_FIELDS.flatMap((field) => (entries[field] ? [[field, entries[field].value]] : []))
    return [id, Object.fromEntries(fields) as GroupOverride] as const
  })
  return Object.fromEntries(set.filter(([, override]) => Object.keys(override).length > 0))
}

function rowOf(row: GroupRowView, defaults: GroupDefaults, waiting: number): GroupRow {
  const state = groupStateOf(row, defaults)
  const share = Math.min(1, state.waiting / Math.max(1, waiting))
  return { ...state, headAgeMs: ageMs(row.headReadyMs, Number(row.at)), share }
}
