import type { Cell } from './cell.ts'
import type { Lane } from './lane.ts'

/** The place of a lane in the line of a cell. */
export interface Place {
  readonly tag: number
  /** By how much it took the tag of its group further in that line. */
  readonly step: number
  /** That it waits for. */
  units: number
  /** That applies to the job. */
  tier?: string | undefined
}

/** What a held lane has until it is served or gives up. */
export interface Ticket {
  /** In whose line it stands; once it is let go it stands in all of them. */
  cell: Cell
  isLetGo: boolean
  readonly places: Map<Cell, Place>
}

export interface Keep {
  readonly lane: Lane
  readonly fromUs: number
  readonly untilUs: number
}

/**
 * The lanes that wait for one cell, in start-time fair queueing between their groups.
 *
 * Decisions where the design is silent:
 * - tags are whole numbers, as those of groups. A group that comes later than the virtual time gets a tag just above that of
 *   the last that came: of equal tags, Redis would decide by the names of lanes, and new groups could keep one out for ever.
 * - of equal tags in a line, names decide; a lane that does not stand is behind one that has the same tag
 * - the line lasts while any lane has a place in it. Then all that is known of it is forgotten, the time that the cell was kept
 *   and that between two ends included.
 * - a keep that has run out stands in the way of another one until the cell is due
 * - the first time between two ends counts whole, each further one by an eighth and at most four times what is known; whole µs
 */
export class Line {
  readonly sinceUs: number
  /** When its first lane may go, µs; infinite if a job has to end first. Undefined if none is to be let go. */
  dueUs: number | undefined
  /** That time, as the lane that was let go last set it. */
  followsAtUs: number | undefined
  keep: Keep | undefined
  /** Mean time between two ends of jobs that hold places, µs; 0 while unknown. */
  betweenEndsUs = 0
  readonly #standing = new Map<Lane, number>()
  /** Those with a place that let others pass. */
  readonly #away = new Set<Lane>()
  readonly #tags = new Map<string, number>()
  #virtual = 0
  #lastTag = 0
  #keptUs = 0
  #endedAtUs: number | undefined

  constructor(nowUs: number) {
    this.sinceUs = nowUs
  }

  get size(): number {
    return this.#standing.size
  }

  get isOver(): boolean {
    return this.#standing.size === 0 && this.#away.size === 0
  }

  get members(): ReadonlyMap<Lane, number> {
    return this.#standing
  }

  /** By tag; names break ties, as in Redis. */
  get inOrder(): Lane[] {
    const order = ([one, tag]: [Lane, number], [other, otherTag]: [Lane, number]) =>
      tag - otherTag || (one.id < other.id ? -1 : 1)
    return [...this.#standing].sort(order).map(([lane]) => lane)
  }

  first(): Lane | undefined {
    return this.inOrder[0]
  }

  /** What a lane of a group gets. */
  tagOf(group: string): number {
    const tag = this.#tags.get(group) ?? 0
    return tag > this.#virtual ? tag : Math.max(this.#virtual, this.#lastTag) + 1
  }

  takePlace(lane: Lane, step: number, units: number): Place {
    const tag = this.tagOf(lane.group)
    this.#noteTag(lane.group, tag, step)
    this.#away.add(lane)
    return { tag, step, units }
  }

  stand(lane: Lane, tag: number): void {
    this.#standing.set(lane, tag)
    this.#away.delete(lane)
  }

  /** The lane lets others pass, and keeps its place. */
  stepOut(lane: Lane): void {
    this.#standing.delete(lane)
    this.#away.add(lane)
  }

  /** A lane that does not stand gives its place back: its group has taken no turn. */
  giveBack(lane: Lane, { step }: Place): void {
    this.#away.delete(lane)
    const tag = this.#tags.get(lane.group)
    if (tag !== undefined) this.#tags.set(lane.group, tag - step)
  }

  /** The lane has left with a charge of the cell. */
  serve(lane: Lane, place: Place | undefined, step: number): void {
    const tag = place?.tag ?? this.tagOf(lane.group)
    if (!place) this.#noteTag(lane.group, tag, step)
    this.#virtual = Math.max(this.#virtual, tag)
    this.#standing.delete(lane)
    this.#away.delete(lane)
  }

  #noteTag(group: string, tag: number, step: number): void {
    if ((this.#tags.get(group) ?? 0) <= this.#virtual) this.#lastTag = Math.max(this.#lastTag, tag)
    this.#tags.set(group, tag + step)
  }

  isKeptFor(nowUs: number): Lane | undefined {
    return this.keep && this.keep.untilUs > nowUs ? this.keep.lane : undefined
  }

  endKeep(nowUs: number): void {
    if (!this.keep) return
    this.#keptUs += Math.max(0, Math.min(nowUs, this.keep.untilUs) - this.keep.fromUs)
    this.keep = undefined
  }

  /** Whether it may be kept, having been kept for less than its budget. */
  mayBeKept(budget: number, nowUs: number): boolean {
    return !this.keep && this.#keptUs <= budget * (nowUs - this.sinceUs)
  }

  noteEnd(nowUs: number): void {
    if (this.#endedAtUs !== undefined) {
      const passedUs = nowUs - this.#endedAtUs
      const known = this.betweenEndsUs
      const moved = known + (Math.min(passedUs, 4 * known) - known) / 8
      this.betweenEndsUs = known === 0 ? passedUs : Math.floor(moved)
    }
    this.#endedAtUs = nowUs
  }
}
