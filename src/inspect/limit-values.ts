import { decodeQueueLimits, type QueueLimit } from '../limits/queue-limits.ts'
import { type GroupState, readEntries, type StoredEntry } from '../queue/groups.ts'
import { type LimitState, type LimitView, limitStateOf } from '../queue/limits.ts'
import { type BatchClient, inBatch } from './batch.ts'
import { type GroupHolder, type HolderView, holdersOf } from './group-holders.ts'
import { askForHistory } from './history.ts'
import { type JobRow, readRows } from './jobs.ts'
import type { HistoryEntry } from './queue-status.ts'
import { listOf, readView } from './view.ts'

/** Number of a queue's changes that are searched for those of one value. */
const HISTORY = 1000

/** The settings of one value of a limit. */
export interface LimitSettings {
  readonly limit: string
  /** The value of each key that the limit counts by. */
  readonly keys: Readonly<Record<string, string>>
  readonly overrides: GroupState['overrides']
}

/** The values of limits with `by` that are worth showing, and the members of pools. */
export interface LimitValuesView {
  readonly at: Date
  /**
   * First the values for which most lanes wait: the jobs of a group with equal values share a lane. Then those with the
   * most running jobs. With more than 100 awaited values, or more running jobs, 100 are read. Finally the members of
   * pools.
   */
  readonly rows: readonly LimitValueRow[]
  /** Number of values that lanes wait for. */
  readonly values: number
  /** Number of lanes that wait for the values without a row; with more than 100 values, an estimate. */
  readonly otherLanes: number
  /**
   * Number of places of values without a row that the jobs of this queue hold; with more than 100 running jobs, an
   * estimate.
   */
  readonly otherPlaces: number
}

export interface LimitValueRow extends LimitUse {
  readonly limit: string
  /** The value of each key that the limit counts by; for a pool, `member`. */
  readonly keys: Readonly<Record<string, string>>
  /** Lanes that wait for it, or for another limit before. */
  readonly waitingLanes: number
}

/** The used part of a value; undefined if it has no limit. */
export interface LimitUse {
  /** Places in use; for a window its count, for a bucket the units that have not drained or refilled yet. */
  readonly used: number | undefined
  /** The maximum of the same: places, units in a window, or the burst. */
  readonly most: number | undefined
}

/** One value of a limit, its waiting jobs and its holders. */
export interface LimitValueDetail extends LimitState, LimitUse {
  /** The first waiting jobs: the first one of each lane, without lanes the first of the group. */
  readonly jobs: readonly JobRow[]
  /** The jobs that hold its places, at most 20; none for a limit without places. */
  readonly holders: readonly GroupHolder[]
  /** Its settings, set and lifted, newest first, of the last 1,000 changes of the queue. */
  readonly history: readonly HistoryEntry[]
}

interface UseView {
  readonly used?: string
  readonly most?: number
}

function useOf({ used, most }: UseView): LimitUse {
  return { used: used === undefined ? undefined : Number(used), most }
}

/** @returns undefined for a queue without limits by keys and pools */
export async function limitValuesOf(
  redis: BatchClient,
  base: string,
  count: number,
): Promise<LimitValuesView | undefined> {
  type Row = UseView & Omit<LimitValueRow, 'waitingLanes' | keyof LimitUse> & { readonly lanes: number }
  type View = Record<'values' | 'others' | 'places', number> & { readonly at: string; readonly rows: readonly Row[] }
  const view = await readView<View>(redis, base, 'limit values', { count })
  if (!view) return undefined
  const rows = listOf(view.rows).map((row) => ({
    ...{ limit: row.limit, keys: row.keys, waitingLanes: row.lanes },
    ...useOf(row),
  }))
  const { values, others: otherLanes, places: otherPlaces } = view
  return { at: new Date(Number(view.at) / 1000), rows, values, otherLanes, otherPlaces }
}

/** The values of a sharded queue, whose shards have different groups. */
export function wholeLimitValues(
  views: readonly (LimitValuesView | undefined)[],
  count: number,
): LimitValuesView | undefined {
  const found = views.filter((view) => view !== undefined)
  const [first] = found
  if (!first) return undefined
  const sum = (of: (view: LimitValuesView) => number) => found.reduce((total, view) => total + of(view), 0)
  const most = (rows: readonly LimitValueRow[], by: (row: LimitValueRow) => number) =>
    rows.toSorted((one, other) => by(other) - by(one)).slice(0, count)
  const all = found.flatMap((view) => view.rows)
  const awaited = most(
    all.filter(({ waitingLanes }) => waitingLanes > 0),
    (row) => row.waitingLanes,
  )
  const rows = [
    ...awaited,
    ...most(
      all.filter((row) => !awaited.includes(row)),
      (row) => (row.used ?? 0) / (row.most ?? 1),
    ),
  ]
  const left = all.filter((row) => !rows.includes(row))
  return {
    ...{ at: first.at, rows, values: sum(({ values }) => values) },
    otherLanes: sum(({ otherLanes }) => otherLanes) + left.reduce((total, { waitingLanes }) => total + waitingLanes, 0),
    otherPlaces: sum(({ otherPlaces }) => otherPlaces),
  }
}

/**
 * @param keys the value of each key that the limit counts by
 * @returns undefined for a queue without such a limit
 */
export async function limitValueDetail(
  redis: BatchClient,
  base: string,
  {
    name,
    keys,
    count,
  }: { readonly name: string; readonly keys: Readonly<Record<string, string>>; readonly count: number },
): Promise<LimitValueDetail | undefined> {
  type View = LimitView &
    UseView & { readonly limits: string; readonly jobs: readonly string[]; readonly holders: readonly HolderView[] }
  const [view, changes] = await Promise.all([
    readView<View>(redis, base, 'limit in detail', { name, keys, count }),
    inBatch(redis, (batch) => askForHistory(base, batch, { count: HISTORY })),
  ])
  if (!view) return undefined
  const limit = decodeQueueLimits(view.limits).find((one) => one.name === name) as QueueLimit
  const state = limitStateOf(limit, keys, view)
  const places = listOf(view.jobs).map((id) => ({ base, id }))
  const jobs = await readRows(redis, places)
  const holders = holdersOf(view.holders, state.at.getTime())
  const history = changes.filter(({ kind, change }) => kind === 'limit' && isOf(change, name, keys))
  return { ...state, ...useOf(view), jobs, holders, history }
}

function isOf(change: HistoryEntry['change'], name: string, keys: Readonly<Record<string, string>>): boolean {
  const its = Object(change.keys) as Readonly<Record<string, unknown>>
  return change.limit === name && Object.entries(keys).every(([key, value]) => its[key] === value)
}

/** All current settings of values of limits, in the order of limits and values. */
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
