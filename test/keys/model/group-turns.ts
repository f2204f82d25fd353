import type { Bucket } from '../../groups/model/charges.ts'
import { byRank, type Lane } from './lane.ts'
import type { GroupSettings } from './shape.ts'

/** What a cost of 1 and a weight of 1 add to a tag. */
const UNIT = 2 ** 20

/** `idle`: no lane of it is ready, and nothing holds it as a whole. */
export type State = 'idle' | 'ready' | 'limited' | 'full' | 'paused'

export interface Group {
  readonly name: string
  /** Those that have jobs. */
  readonly lanes: Map<string, Lane>
  /** The last number of a turn. */
  turns: number
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
 * - a lane that becomes ready has a group that its rate holds looked at again if it is the first of that group now, as a new
 *   first job has; the hold was for the cost of another job
 * - a group without waiting jobs starts its turns anew
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
      ...{ name, lanes: new Map(), turns: 0, running: new Set(), state: 'idle', tag: 0, atUs: 0 },
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

  /** A lane has jobs and is not held, or no longer: its group takes its place among the others. */
  laneReady(lane: Lane, nowUs: number): void {
    const group = this.group(lane.group)
    lane.state = 'ready'
    if (group.state === 'idle' && group.pausedUntilUs > nowUs) this.hold(group, 'paused', group.pausedUntilUs)
    else if (group.state === 'idle' || (group.state === 'limited' && this.firstLane(group) === lane)) this.enter(group)
  }

  /** What held the group may have ended: it is ready until it is found to be held again. */
  enter(group: Group): void {
    if (!this.firstLane(group)) {
      this.hold(group, 'idle', 0)
      return
    }
    if (group.tag <= this.#virtual) {
      this.#lastTag = Math.max(this.#virtual, this.#lastTag) + 1
      group.tag = this.#lastTag
    }
    group.state = 'ready'
  }

  hold(group: Group, state: State, atUs: number): void {
    group.state = state
    group.atUs = atUs
    if (group.lanes.size === 0) group.turns = 0
    this.#endBusyPeriod()
  }

  /** A lane was parked, or has no more jobs. */
  laneLeft(group: Group): void {
    if (group.lanes.size === 0 || (group.state === 'ready' && !this.firstLane(group))) this.hold(group, 'idle', 0)
  }

  serve(group: Group, lane: Lane, cost: number, weight: number | undefined): void {
    this.#virtual = Math.max(this.#virtual, group.tag)
    group.tag += stepOf(cost, weight)
    this.toBack(group, lane)
  }

  /** The lane goes behind the others of its group. */
  toBack(group: Group, lane: Lane): void {
    group.turns += 1
    lane.turn = group.turns
  }

  #endBusyPeriod(): void {
    if (this.all.some(({ lanes, state }) => lanes.size > 0 || state !== 'idle')) return
    this.#virtual = 0
    this.#lastTag = 0
    for (const group of this.all) group.tag = 0
  }
}
