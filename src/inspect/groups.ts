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
import { type GroupHolder, type HolderView, holdersOf } from './group-holders.ts'
import { type JobRow, readRows } from './jobs.ts'
import { listOf, readView } from './view.ts'

export type { GroupCounts } from '../queue/groups.ts'

/** A group among the others. */
export interface GroupRow extends GroupState {
  /** For how long its next job has been ready to depart, ms; undefined without one. */
  readonly headAgeMs: number | undefined
  /** Its part of the waiting jobs of all groups, 0 to 1. */
  readonly share: number
}

/** The groups of a queue that are worth showing. */
export interface GroupsView {
  readonly at: Date
  readonly counts: GroupCounts
  /** Waiting jobs of all groups. */
  readonly waiting: number
  /** Groups whose next job has been ready longest. */
  readonly oldest: readonly GroupRow[]
  /** Groups with the most waiting jobs: found among 100 jobs spaced over all waiting ones, so one may be missed. */
  readonly largest: readonly GroupRow[]
  /** Groups held by their rate, their running jobs or a pause; of each kind the first that are due. */
  readonly held: readonly GroupRow[]
}

/** One group, and its next jobs. */
export interface GroupDetail extends GroupRow {
  readonly jobs: readonly JobRow[]
  /** The jobs that hold its places, at most 20, if all of these are taken (`maxed`); otherwise none. */
  readonly holders: readonly GroupHolder[]
}

/** The result of `lua/views/group.lua` for a queue. */
interface ManyGroups {
  readonly at: string
  /** The defaults, as stored. */
  readonly groups: string
  readonly counts: GroupCounts
  readonly waiting: number
  /** `list`: the list of held groups in which it was found. */
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
 * A group changes its list only when jobs are requested: one that was paused since is still in line. The counts match
 * the shown rows.
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
  return { ...row, jobs: await readRows(redis, places), holders: holdersOf(view.holders, row.at.getTime()) }
}

/** The same for one group, with the ids of its first jobs and the waiting jobs of all groups. */
interface OneGroup extends GroupView {
  readonly jobs: readonly string[]
  readonly waiting: number
  readonly holders: readonly HolderView[]
}

/** All current settings of groups, by their ids. */
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

/** The settings of groups that `setGroup` takes. */
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
