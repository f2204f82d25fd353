import type { Lane } from './lane.ts'

/** A lane's place in the line of a cell, which it keeps until it is served or waits elsewhere. */
export interface Ticket {
  readonly cellId: string
  readonly tag: number
  /** What it took the tag of its group further in that line. */
  readonly step: number
  /** Of which line it is: of one that began at another time it is void. */
  readonly lineSinceUs: number
}

export interface Keep {
  readonly lane: Lane
  readonly fromUs: number
  readonly untilUs: number
}

const RETRY_US = 250_000

/**
 * The lanes that wait for one cell, in start-time fair queueing between their groups.
 *
 * Decisions where the design is silent:
 * - tags are whole numbers, as those of groups. A group that comes later than the virtual time gets a tag just above that of
 *   the last that came: of equal tags, Redis would decide by the names of lanes, and new groups could keep one out for ever.
 * - of equal tags in a line, names decide; a lane that has the tag of the first, and is not in the line, is not behind that.
 *   Otherwise one that is never in a line for long, as it needs several cells, would lose all ties by its name.
 * - the line begins with its first lane and ends when a look finds it empty: a lane that was released last still finds its
 *   place. Then all that is known of it is forgotten, the time that the cell was kept and that between two ends included.
 * - the first time between two ends counts whole, each further one by an eighth and at most four times what is known; whole µs
 */
export class Line {
  readonly sinceUs: number
  /** When its first lane may go, µs; infinite if a job has to end first. Undefined while nobody stands in it. */
  dueUs: number | undefined
  /** How many were released since the last departure or end. */
  released = 0
  keep: Keep | undefined
  /** Mean time between two ends of jobs that hold places, µs; 0 while unknown. */
  betweenEndsUs = 0
  readonly #members = new Map<Lane, number>()
  readonly #finishTags = new Map<string, number>()
  #virtual = 0
  #lastTag = 0
  #keptUs = 0
  #endedAtUs: number | undefined

  constructor(nowUs: number) {
    this.sinceUs = nowUs
  }

  get size(): number {
    return this.#members.size
  }

  get members(): ReadonlyMap<Lane, number> {
    return this.#members
  }

  first(): Lane | undefined {
    let first: [Lane, number] | undefined
    for (const one of this.#members) if (!first || isBefore(one, first)) first = one
    return first?.[0]
  }

  /** The tag of a lane's ticket here, else the one that it would get. */
  tagOf(lane: Lane, cellId: string): number {
    if (this.isValid(lane.ticket, cellId)) return lane.ticket.tag
    const finish = this.#finishTags.get(lane.group) ?? 0
    return finish > this.#virtual ? finish : Math.max(this.#virtual, this.#lastTag) + 1
  }

  isValid(ticket: Ticket | undefined, cellId: string): ticket is Ticket {
    return ticket !== undefined && ticket.cellId === cellId && ticket.lineSinceUs === this.sinceUs
  }

  /** Whether the lane would stand behind another one, which it may not pass. */
  isBehind(lane: Lane, cellId: string): boolean {
    const first = this.first()
    return first !== undefined && (this.#members.get(first) as number) < this.tagOf(lane, cellId)
  }

  /** @returns the lane's ticket here */
  stand(lane: Lane, cellId: string, step: number): Ticket {
    const tag = this.tagOf(lane, cellId)
    const known = this.isValid(lane.ticket, cellId) ? lane.ticket : undefined
    if (!known) this.#noteTag(lane.group, tag, step)
    this.#members.set(lane, tag)
    return known ?? { cellId, tag, step, lineSinceUs: this.sinceUs }
  }

  step(lane: Lane): void {
    this.#members.delete(lane)
  }

  /** A lane leaves the queue's line of jobs with a charge of this cell; only in contention that is its turn. */
  serve(lane: Lane, cellId: string, step: number): void {
    if (this.size === 0) return
    const tag = this.tagOf(lane, cellId)
    if (!this.isValid(lane.ticket, cellId)) this.#noteTag(lane.group, tag, step)
    this.#virtual = Math.max(this.#virtual, tag)
  }

  /** A ticket that was not served: its group has taken no turn. */
  giveUp({ tag, step }: Ticket, group: string): void {
    const finish = this.#finishTags.get(group)
    if (finish !== undefined) this.#finishTags.set(group, Math.max(tag, finish - step))
  }

  #noteTag(group: string, tag: number, step: number): void {
    if ((this.#finishTags.get(group) ?? 0) <= this.#virtual) this.#lastTag = tag
    this.#finishTags.set(group, tag + step)
  }

  /** How long the next lane waits if the one that was released does not take the place that is free. */
  retryUs(): number {
    return RETRY_US * 2 ** (this.released - 1)
  }

  isKeptFor(nowUs: number): Lane | undefined {
    return this.keep && this.keep.untilUs > nowUs ? this.keep.lane : undefined
  }

  keepFor(lane: Lane, fromUs: number, untilUs: number): void {
    this.keep = { lane, fromUs, untilUs }
  }

  endKeep(nowUs: number): void {
    if (!this.keep) return
    this.#keptUs += Math.min(nowUs, this.keep.untilUs) - this.keep.fromUs
    this.keep = undefined
  }

  /** Whether it may be kept, having been kept for less than its budget. */
  mayBeKept(budget: number, nowUs: number): boolean {
    if (this.keep && this.keep.untilUs <= nowUs) this.endKeep(nowUs)
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

/** By tag; names break ties, as in Redis. */
function isBefore([lane, tag]: readonly [Lane, number], [other, otherTag]: readonly [Lane, number]): boolean {
  return tag < otherTag || (tag === otherTag && lane.id < other.id)
}
