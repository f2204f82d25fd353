import type { Bucket } from '../../groups/model/charges.ts'
import { byRank, type Lane } from './lane.ts'
import type { GroupSettings } from './shape.ts'

/** What a cost of 1 and a weight of 1 add to a tag. */
const UNIT = 2 ** 20

/** `idle`: it has no jobs. One that waits for its lanes alone is limited, for ever. */
export type State = 'idle' | 'ready' | 'limited' | 'full' | 'paused'

export interface Group {
  readonly name: string
  /** Those that have jobs. */
  readonly lanes: Map<string, Lane>
  readonly running: Set<string>
  state: State
  /** Start tag if it is ready; otherwise the tag that it keeps. */
  tag: number
  /** When its hold ends, or since when it is full, µs. */
  atUs: number
  own: GroupSettings
  pausedUntilUs: number
  bucket: Bucket | undefined
  /** When what was set for it changed last, a pause too, µs; 0 if it has never changed. */
  changedUs: number
}

/** By how much a cost takes the tag of its group further. */
export function stepOf(cost: number, weight = 1): number {
  return Math.max(1, Math.floor((cost * UNIT) / weight + 0.5))
}

/** Of two in the same state. */
function isBefore(one: Group, other: Group): boolean {
  const key = one.state === 'ready' ? ('tag' as const) : ('atUs' as const)
  return one[key] < other[key] || (one[key] === other[key] && one.name < other.name)
}

/**
 * Groups take turns by start-time fair queueing; a group is ready if one of its lanes is, and nothing holds it as a whole.
 *
 * Decisions where the design is silent:
 * - a queue is busy while jobs wait, also while all of them are held: only then are all tags forgotten
 * - a group whose hold may have ended takes its place among the others, though no lane of it may be ready
 */
export class GroupTurns {
  ageingMs: number | undefined
  readonly #groups = new Map<string, Group>()
  #virtual = 0
  #lastTag = 0

  group(name: string): Group {
    const known = this.#groups.get(name)
    if (known) return known
    const group: Group = {
      ...{ name, lanes: new Map(), running: new Set(), state: 'idle', tag: 0, atUs: 0 },
      ...{ own: {}, pausedUntilUs: 0, bucket: undefined, changedUs: 0 },
    }
    this.#groups.set(name, group)
    return group
  }

  get all(): readonly Group[] {
    return [...this.#groups.values()]
  }

  get lanes(): readonly Lane[] {
    return this.all.flatMap(({ lanes }) => [...lanes.values()])
  }

  /** By tag or time; names break ties, as in Redis. */
  in(state: State): Group[] {
    return this.all.filter((group) => group.state === state).sort((a, b) => (isBefore(a, b) ? -1 : 1))
  }

  firstIn(state: State): Group | undefined {
    let first: Group | undefined
    for (const group of this.#groups.values())
      if (group.state === state && (!first || isBefore(group, first))) first = group
    return first
  }

  /** The lane of a group whose turn it is, if one is ready. */
  firstLane({ lanes }: Group): Lane | undefined {
    const compare = byRank(this.ageingMs)
    let first: Lane | undefined
    for (const lane of lanes.values()) if (lane.state === 'ready' && (!first || compare(lane, first) < 0)) first = lane
    return first
  }

  /** In their order. */
  readyLanes({ lanes }: Group): Lane[] {
    return [...lanes.values()].filter(({ state }) => state === 'ready').sort(byRank(this.ageingMs))
  }

  isHeld({ state }: Group): boolean {
    return state === 'limited' || state === 'full' || state === 'paused'
  }

  /** Whether a group has jobs, but no lane that is ready. */
  waitsForLanes({ state, atUs }: Group): boolean {
    return state === 'limited' && atUs === Number.POSITIVE_INFINITY
  }

  /** A lane is not held, or no longer: its group takes its place among the others, if it waited for that alone. */
  laneReady(lane: Lane): void {
    lane.state = 'ready'
    const group = this.group(lane.group)
    if (this.waitsForLanes(group)) this.enter(group)
  }

  /** The group has jobs again: it is ready, unless it was paused before it had any. */
  begin(group: Group, nowUs: number): void {
    if (group.pausedUntilUs > nowUs) this.hold(group, 'paused', group.pausedUntilUs)
    else this.enter(group)
  }

  /** What held the group may have ended: it is ready until it is found to be held again. */
  enter(group: Group): void {
    if (group.tag <= this.#virtual) {
      this.#lastTag = Math.max(this.#virtual, this.#lastTag) + 1
      group.tag = this.#lastTag
    }
    group.state = 'ready'
  }

  hold(group: Group, state: State, atUs: number): void {
    group.state = state
    group.atUs = atUs
    this.#endBusyPeriod()
  }

  /** No lane of it is ready. */
  noLane(group: Group): void {
    if (group.lanes.size === 0) this.hold(group, 'idle', 0)
    else this.hold(group, 'limited', Number.POSITIVE_INFINITY)
  }

  serve(group: Group, cost: number, weight: number | undefined): void {
    this.#virtual = Math.max(this.#virtual, group.tag)
    group.tag += stepOf(cost, weight)
  }

  #endBusyPeriod(): void {
    if (this.all.some(({ state }) => state !== 'idle')) return
    this.#virtual = 0
    this.#lastTag = 0
    for (const group of this.all) group.tag = 0
  }
}
