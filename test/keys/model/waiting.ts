import { Cell } from './cell.ts'
import { type GroupTurns, stepOf } from './group-turns.ts'
import { keepContended } from './keep.ts'
import type { Lane, Need } from './lane.ts'
import { Line } from './line.ts'
import type { Features } from './shape.ts'

/** What a lane's first job finds at a cell. */
export interface Found extends Need {
  /** The earliest slot, µs; infinite where a place is missing. */
  readonly slotUs: number
  /** Whether another lane is before it, or the cell is kept for another. */
  readonly isBehind: boolean
}

/** What a queue knows of its groups and of jobs. */
export interface Waiters {
  readonly turns: GroupTurns
  readonly features: Features
  weightOf(group: string): number | undefined
  /** What the first job of a lane needs, in the order of the limits. */
  needsOf(lane: Lane): readonly Need[]
}

/**
 * What held lanes wait for.
 *
 * Decisions where the design is silent:
 * - of several full cells a lane parks at the first in the order of the limits; of several that it is behind at, and of
 *   several slots, at the first with the latest slot
 * - all lines have a time at which their first may go, also an infinite one: a change of the shape finds them by that
 * - the planned slot behind a lane that was released is the slot of the next one now, and one service of the first later
 * - a lane that its group holds as a whole is released as well: it waits for its group, keeps its ticket, and is not
 *   counted among those released, so the next one is released at once. The same where a group is held while a lane of it is
 *   released already: otherwise the next one would wait for one service of a lane that cannot go.
 * - without lines a lane competes again at its slot, or as soon as its first job may be another one
 * - ends of places, and the departure and return of a job, set the time of a line to what its first needs, not to now
 */
export class Waiting {
  readonly #of: Waiters
  /** All with a line. */
  readonly #lines = new Map<string, Cell>()
  /** Lines to be looked at anew, each with the time at which its first might have gone. */
  readonly #stale = new Map<string, number>()

  constructor(of: Waiters) {
    this.#of = of
  }

  get cells(): readonly Cell[] {
    return [...this.#lines.values()]
  }

  /** What the lane's first job finds at each of its cells. */
  look(lane: Lane, nowUs: number): Found[] {
    return this.#of.needsOf(lane).map(({ cell, cost }) => {
      const keptFor = cell.line?.isKeptFor(nowUs)
      const isKept = this.#of.features.keep && keptFor !== undefined && keptFor !== lane
      const isBehind = this.#of.features.lines && (isKept || (cell.line?.isBehind(lane, cell.id) ?? false))
      return { cell, cost, slotUs: cell.slot(cost, nowUs), isBehind }
    })
  }

  /**
   * A lane's turn: either all of its cells let it go by a time, or it parks at one of them.
   * @returns its slot; undefined if it was parked
   */
  try(lane: Lane, byUs: number, nowUs: number): number | undefined {
    const found = this.look(lane, nowUs)
    const full = found.find(({ slotUs }) => slotUs === Number.POSITIVE_INFINITY)
    const behind = latestOf(found.filter(({ isBehind }) => isBehind))
    const worst = latestOf(found.filter(({ slotUs }) => slotUs > byUs && slotUs !== Number.POSITIVE_INFINITY))
    if (!full && !behind && !worst) return Math.max(0, ...found.map(({ slotUs }) => slotUs))
    const waitsFor = full ?? worst
    const { keep, keepBudget } = this.#of.features
    if (keep && !behind && waitsFor) keepContended(lane, found, waitsFor, { byUs, nowUs, keepBudget })
    if (full || !behind) lane.misses += 1
    this.#park(lane, full ?? behind ?? (worst as Found), nowUs)
    return undefined
  }

  #park(lane: Lane, { cell, cost, slotUs }: Found, nowUs: number): void {
    const { turns, features } = this.#of
    if (features.lines) {
      this.#stand(lane, cell, cost, nowUs)
    } else {
      lane.state = 'until'
      lane.untilUs = slotUs
    }
    turns.laneLeft(turns.group(lane.group))
  }

  #stand(lane: Lane, cell: Cell, cost: number, nowUs: number): void {
    cell.line ??= new Line(nowUs)
    this.#lines.set(cell.id, cell)
    const before = lane.ticket
    const ticket = cell.line.stand(lane, cell.id, stepOf(cost, this.#of.weightOf(lane.group)))
    lane.state = 'line'
    if (ticket !== before) {
      lane.ticket = ticket
      if (before) this.#giveUp(before, lane.group)
    }
    // The cell that it was released from passes on at once.
    if (before && before.cellId !== cell.id) this.setDue(before.cellId, nowUs)
    this.setDue(cell.id, nowUs)
  }

  #giveUp(ticket: NonNullable<Lane['ticket']>, group: string): void {
    const line = this.#lines.get(ticket.cellId)?.line
    if (line?.isValid(ticket, ticket.cellId)) line.giveUp(ticket, group)
  }

  /** When the first of a line may go by what is known now; a line that is found empty ends. */
  setDue(cellId: string, nowUs: number): void {
    const cell = this.#lines.get(cellId)
    const line = cell?.line
    if (!cell || !line) return
    const first = line.first()
    if (!first) {
      cell.line = undefined
      this.#lines.delete(cellId)
      this.#stale.delete(cellId)
      return
    }
    const keptFor = line.isKeptFor(nowUs)
    const keptUntilUs = keptFor && keptFor !== first ? (line.keep?.untilUs as number) : 0
    line.dueUs = Math.max(this.#slotOf(first, cell, nowUs), keptUntilUs)
  }

  /** Of a lane that needs the cell no longer: now. */
  #slotOf(lane: Lane, cell: Cell, nowUs: number): number {
    const need = this.#needOf(lane, cell)
    return need ? cell.slot(need.cost, nowUs) : nowUs
  }

  #needOf(lane: Lane, cell: Cell): Need | undefined {
    return this.#of.needsOf(lane).find((need) => need.cell === cell)
  }

  /** The first cell, or lane, whose time comes, and when; names break ties, as in Redis. */
  #next(): { readonly at: number; readonly of?: Cell | Lane } {
    let [at, of]: [number, Cell | Lane | undefined] = [Number.POSITIVE_INFINITY, undefined]
    const note = (atUs: number, one: Cell | Lane) => {
      if (atUs < at || (atUs === at && of && one.id < of.id)) [at, of] = [atUs, one]
    }
    if (this.#of.features.lines) {
      for (const cell of this.#lines.values())
        if (cell.line?.dueUs !== undefined && !this.#stale.has(cell.id)) note(cell.line.dueUs, cell)
    } else {
      for (const { lanes } of this.#of.turns.all)
        for (const lane of lanes.values()) if (lane.state === 'until') note(lane.untilUs, lane)
    }
    return of ? { at, of } : { at }
  }

  /** When the first lane may compete again, µs; infinite if that depends on the end of a job. */
  get nextUs(): number {
    return this.#next().at
  }

  /** The time of a cell, or of a lane without lines, has come: one lane competes for the turn of its group. */
  releaseNext(nowUs: number): void {
    const { of } = this.#next()
    if (of instanceof Cell) this.#release(of, nowUs)
    else if (of) this.#of.turns.laneReady(of, nowUs)
  }

  #release(cell: Cell, nowUs: number): void {
    const line = cell.line as Line
    const lane = line.first() as Lane
    line.step(lane)
    const { turns } = this.#of
    turns.laneReady(lane, nowUs)
    const isHeld = turns.isHeld(turns.group(lane.group))
    if (!isHeld) line.released += 1
    const second = line.first()
    if (!second) line.dueUs = undefined
    else if (isHeld) this.setDue(cell.id, nowUs)
    else line.dueUs = this.#plannedUs(cell, lane, second, nowUs)
  }

  #plannedUs(cell: Cell, first: Lane, second: Lane, nowUs: number): number {
    const [own, before] = [second, first].map((lane) => this.#needOf(lane, cell))
    if (!own) return nowUs
    const slotUs = cell.slot(own.cost, nowUs)
    if (cell.isPlaces) return slotUs === nowUs ? nowUs + (cell.line as Line).retryUs() : slotUs
    return slotUs + cell.serviceUs(before?.cost ?? 0)
  }

  /** The lane leaves with a charge of these cells, which have not been charged yet. */
  serve(lane: Lane, needs: readonly Need[], nowUs: number): void {
    for (const { cell, cost } of needs) {
      cell.line?.serve(lane, cell.id, stepOf(cost, this.#of.weightOf(lane.group)))
      if (cell.line?.keep?.lane === lane) cell.line.endKeep(nowUs)
    }
  }

  /** The lane has left, and its ticket with it. It takes its next place with what is known now, before its cells pass on. */
  served(lane: Lane, needs: readonly Need[], nowUs: number): void {
    const { ticket } = lane
    lane.ticket = undefined
    lane.misses = 0
    if (ticket && !needs.some(({ cell }) => cell.id === ticket.cellId)) {
      this.#giveUp(ticket, lane.group)
      this.setDue(ticket.cellId, nowUs)
    }
    if (lane.jobs.length > 0) this.try(lane, nowUs, nowUs)
    for (const { cell } of needs) this.passOn(cell, nowUs)
  }

  /** Something was charged, given back or freed: the first of the line may go at another time. */
  passOn(cell: Cell, nowUs: number): void {
    if (cell.line) cell.line.released = 0
    this.setDue(cell.id, nowUs)
  }

  /** The lane was released, and its group is held as a whole now. */
  noteHeld({ ticket }: Lane, nowUs: number): void {
    if (ticket) this.setDue(ticket.cellId, nowUs)
  }

  /** The first job of a lane is another one, or may be. */
  noteHead(lane: Lane, nowUs: number): void {
    if (lane.state === 'until') this.#of.turns.laneReady(lane, nowUs)
    else if (lane.state === 'line' && lane.ticket) this.setDue(lane.ticket.cellId, nowUs)
  }

  /** The lane has no more jobs, without having been served: what it waited for and what is kept for it is free. */
  leave(lane: Lane, nowUs: number): void {
    const { ticket } = lane
    const kept = this.cells.filter(({ line }) => line?.keep?.lane === lane)
    for (const { line } of kept) line?.endKeep(nowUs)
    if (ticket) {
      this.#lines.get(ticket.cellId)?.line?.step(lane)
      this.#giveUp(ticket, lane.group)
      lane.ticket = undefined
    }
    for (const cellId of new Set([...kept.map(({ id }) => id), ...(ticket ? [ticket.cellId] : [])].sort()))
      this.setDue(cellId, nowUs)
  }

  /** The limits are others: whatever waits is looked at anew. */
  markStale(): void {
    for (const { id, line } of this.#lines.values()) if (line?.dueUs !== undefined) this.#stale.set(id, line.dueUs)
  }

  /** @param most so many at once; @param isKnown whether the cell is of a limit that there is still */
  renewStale(most: number, nowUs: number, isKnown: (cell: Cell) => boolean): void {
    const ids = [...this.#stale].sort(([a, at], [b, other]) => at - other || (a < b ? -1 : 1)).slice(0, most)
    for (const [id] of ids) {
      this.#stale.delete(id)
      const cell = this.#lines.get(id) as Cell
      if (isKnown(cell)) this.setDue(id, nowUs)
      else if (cell.line) cell.line.dueUs = nowUs
    }
  }
}

/** The one with the latest slot, of several the first. */
function latestOf(found: readonly Found[]): Found | undefined {
  let latest: Found | undefined
  for (const one of found) if (!latest || one.slotUs > latest.slotUs) latest = one
  return latest
}
