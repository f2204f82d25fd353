import { NoGroupsError } from '../errors.ts'
import { isScheduled, type StoredRate } from '../limits/schedule.ts'
import { plainText } from '../plain-text.ts'
import { intervalUs, parseRate, type RateInput } from '../rate.ts'
import type { Client } from '../redis/commands.ts'
import {
  checkGroupField,
  checkGroupId,
  decodeGroupFields,
  decodeGroups,
  encodeGroupOverride,
  GROUP_FIELDS,
  type GroupFields,
  type GroupOverride,
} from '../shape/groups.ts'
import type { Attribution, ShapeStore } from '../shape/store.ts'
import type { OverrideEntry } from '../shape/stored.ts'
import type { ShapeChange } from './options.ts'

/**
 * `waiting`: its next job is in line; `limited`: held by its rate; `maxed`: as many of its jobs run as may; `idle`:
 * none of its jobs waits. The names are those of BullMQ Pro.
 */
export type GroupStatus = 'waiting' | 'limited' | 'maxed' | 'paused' | 'idle'

export interface GroupBound {
  readonly jobs: number
  readonly by: 'capacity' | 'share'
}

/** The state of one group at one moment of Redis's clock. */
export interface GroupState {
  readonly id: string
  readonly at: Date
  readonly status: GroupStatus
  /** Its waiting jobs, without delayed ones. */
  readonly waiting: number
  /** Its jobs that hold a place, but are not in line: delayed ones, and parents that wait for their children. */
  readonly delayed: number
  /** Its running jobs; undefined while no group of the queue has a limit on them. */
  readonly active: number | undefined
  /** Its next slot if its rate or a limit holds it, or the end of its pause; undefined if there is none. */
  readonly until: Date | undefined
  /**
   * The limit of the shape, with `by`, that holds it; undefined if none does. Where limits have keys, it is held if all its
   * jobs are; this limit is the one of the lane that goes first, as is `until`, undefined where that is not known.
   */
  readonly heldBy: string | undefined
  /** The values of the keys of that limit, including `group` if it counts groups; undefined if limits have no keys. */
  readonly heldKeys: Readonly<Record<string, string>> | undefined
  /**
   * Why it is `maxed`: its own `concurrency`, its `order`, or `keepFree` of the shape, which keeps the remaining places
   * for groups without running jobs. Undefined otherwise.
   */
  readonly maxedBy: 'concurrency' | 'order' | 'keepFree' | undefined
  /**
   * How many jobs it may hold now, and why: its own `capacity`, or `share`, which follows the free places. Undefined if
   * nothing bounds it. It may hold more, of jobs that were admitted before or came back.
   */
  readonly bound: GroupBound | undefined
  /** Its current settings: the defaults of the shape, and its own. */
  readonly inForce: GroupFields
  /**
   * Its own settings, with author, time and reason. Also `paused` and `ramp` (since when its rate rises after a pause,
   * without shorter pauses since, ms), with `rampUp` of the shape. Temporary ones: `limited` (by `rateLimitGroup` or feedback), and by feedback
   * `slowed` (a bound of its rate), `paced` (the rate that `adapt` found) and `crowded` (a bound of its running jobs).
   */
  readonly overrides: Readonly<Record<string, Omit<OverrideEntry, 'value'> & { readonly value: unknown }>>
}

/** Number of groups with waiting jobs in each state. */
export type GroupCounts = Readonly<Record<Exclude<GroupStatus, 'idle'>, number>>

export const STATES: Readonly<Record<GroupStatus, string>> = {
  waiting: 'ready',
  limited: 'limited',
  maxed: 'full',
  paused: 'paused',
  idle: 'idle',
}
const HOLDS = ['paused', 'limited', 'slowed', 'paced', 'crowded']
const LISTED = ['waiting', 'limited', 'maxed', 'paused'] as const

/** The setting of one field of a group, as `lua/verbs/set-group.lua` stores it. */
export interface StoredEntry {
  readonly value: number | string | StoredRate | null | true
  readonly by: string
  readonly reason: string
  readonly at: number
  readonly until?: number
}

/** While a schedule lets nothing pass: until when, µs, and its time zone (`lua/limits/scheduled-bucket.lua`). */
export interface StoredClosed {
  readonly ends: string
  readonly zone: string
}

/** The result of `lua/views/group.lua` for one group. */
export interface GroupRowView {
  readonly id: string
  readonly at: string
  readonly state: string
  readonly waiting: number
  readonly delayed: number
  readonly active?: number
  /** Its slot, or the end of its hold. */
  readonly ends?: string
  readonly heldBy?: string
  readonly heldKeys?: Readonly<Record<string, string>>
  readonly closed?: StoredClosed
  readonly maxedBy?: GroupState['maxedBy']
  readonly bound?: GroupBound
  /** Its own settings. */
  readonly fields: Readonly<Record<string, StoredEntry>>
  readonly headReadyMs?: number
}

/** The same with the defaults of its queue, as stored. */
export interface GroupView {
  readonly groups: string
  readonly row: GroupRowView
}

export function dateOfUs(us: string | undefined): Date | undefined {
  return us === undefined ? undefined : new Date(Number(us) / 1000)
}

export function groupStateOf(row: GroupRowView, defaults: GroupFields): GroupState {
  const { id, state, waiting, delayed, active, ends, heldBy, heldKeys, maxedBy, bound } = row
  const overrides = readEntries(row.fields, Number(row.at) / 1000)
  return {
    ...{ id, waiting, delayed, active, heldBy, heldKeys, maxedBy, bound },
    at: new Date(Number(row.at) / 1000),
    status: LISTED.find((status) => STATES[status] === state) ?? 'idle',
    until: dateOfUs(ends),
    inForce: fieldsInForce(defaults, overrides),
    overrides,
  }
}

/** The groups of one queue: their settings and states. */
export class QueueGroups {
  readonly #name: string
  readonly #store: ShapeStore
  readonly #client: () => Promise<Client>

  constructor(name: string, store: ShapeStore, client: () => Promise<Client>) {
    this.#name = name
    this.#store = store
    this.#client = client
  }

  async set(id: string, override: GroupOverride, change: ShapeChange): Promise<void> {
    const { by, reason, ttlMs } = change
    await this.#store.changeGroup(id, encodeGroupOverride(override), { by, reason }, ttlMs)
  }

  /** Lifts settings, except a pause. */
  async clear(id: string, fields: readonly (keyof GroupFields)[], who: Attribution): Promise<void> {
    for (const field of fields) checkGroupField(field)
    const lifted = fields.length > 0 ? fields : GROUP_FIELDS
    await this.#store.changeGroup(id, Object.fromEntries(lifted.map((field) => [field, { clear: true }])), who)
  }

  async pause(id: string, who: Attribution, ttlMs: number | undefined): Promise<void> {
    await this.#store.changeGroup(id, { paused: true }, who, ttlMs)
  }

  /**
   * A warning about a paused group that accepts jobs without a bound; undefined if it has a bound, or that is unknown.
   */
  async unboundedWarning(id: string): Promise<string | undefined> {
    const state = await this.state(id).catch(() => undefined)
    if (!state || state.bound) return undefined
    return plainText(
      `queue "${this.#name}": group "${id}" is paused, and nothing bounds the jobs that it takes meanwhile. ` +
        'Set the capacity of the queue, of its groups (shape.groups) or of this group (setGroup)',
    )
  }

  /** Lifts a pause, and the holds of `rateLimitGroup` and feedback. */
  async resume(id: string, who: Attribution): Promise<void> {
    await this.#store.changeGroup(id, Object.fromEntries(HOLDS.map((field) => [field, { clear: true }])), who)
  }

  async state(id: string): Promise<GroupState> {
    checkGroupId(id)
    const view = await this.#store.view<GroupView>('group', { group: id })
    if (!view) throw new NoGroupsError(this.#name)
    return groupStateOf(view.row, decodeGroups(view.groups))
  }

  /** The ids of the groups with waiting jobs in a state, in the order in which they are due. */
  async byStatus(status: GroupStatus, start: number, end: number): Promise<string[]> {
    const ids = await (await this.#client()).zrange(this.#stateKey(status), start, end)
    return ids.filter((id) => id !== '')
  }

  async counts(): Promise<GroupCounts> {
    const client = await this.#client()
    const [counts, ungrouped] = await Promise.all([
      Promise.all(LISTED.map((status) => client.zcard(this.#stateKey(status)))),
      client.zscore(this.#stateKey('waiting'), ''),
    ])
    const [waiting = 0, limited = 0, maxed = 0, paused = 0] = counts
    return { waiting: waiting - (ungrouped === null ? 0 : 1), limited, maxed, paused }
  }

  /** The ids of a group's waiting jobs, in order. */
  async jobIds(id: string, start: number, end: number): Promise<string[]> {
    checkGroupId(id)
    return (await this.#client()).zrange(`${this.#store.base}meta:group:jobs:${id}`, start, end)
  }

  #stateKey(status: GroupStatus): string {
    return `${this.#store.base}meta:groups:${STATES[status]}`
  }
}

/** The defaults, replaced by the group's own settings. */
function fieldsInForce(defaults: GroupFields, overrides: GroupState['overrides']): GroupFields {
  const values = Object.fromEntries(
    GROUP_FIELDS.flatMap((field) => {
      const override = overrides[field]
      const value = override ? override.value : defaults[field as keyof GroupFields]
      return value === null || value === undefined ? [] : [[field, value]]
    }),
  ) as GroupFields
  const crowded = overrides.crowded?.value as number | undefined
  const slowed = [overrides.slowed, overrides.paced]
    .flatMap((entry) => (entry ? [entry.value as string] : []))
    .reduce((one, other) => (one !== undefined && isSlower(one, other) ? one : other), undefined as string | undefined)
  return {
    ...values,
    ...(values.order === 'strict' && { concurrency: 1 }),
    ...(slowed !== undefined && isSlower(slowed, values.rate) && { rate: slowed }),
    ...(crowded !== undefined && { concurrency: fewer(crowded, values.concurrency) }),
  }
}

/** A share applies too, but is not known here. */
function fewer(most: number, than: GroupFields['concurrency']): number {
  return typeof than === 'number' ? Math.min(most, than) : most
}

/** If a rate follows the clock, the slower one of each time applies: it stays unchanged. */
function isSlower(rate: RateInput, than: GroupFields['rate']): boolean {
  if (isScheduled(than)) return false
  return than === undefined || intervalUs(parseRate(rate)) > intervalUs(parseRate(than))
}

/** The settings of a group that have not ended. The value of a pause is true. */
export function readEntries(stored: Readonly<Record<string, StoredEntry>>, nowMs: number): GroupState['overrides'] {
  const lasting = Object.entries(stored).filter(([, { until }]) => until === undefined || until > nowMs)
  const entries = lasting.map(([field, { value, by, reason, at, until }]) => {
    const readable = typeof value === 'object' ? decodeGroupFields({ rate: value }).rate : value
    const times = { setAt: new Date(at), ...(until === undefined ? {} : { until: new Date(until) }) }
    return [field, { value: readable, by, reason, ...times }] as const
  })
  return Object.fromEntries(entries)
}
