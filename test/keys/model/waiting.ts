import type { Cell } from './cell.ts'
import { type Group, type GroupTurns, stepOf } from './group-turns.ts'
import { keepOthers } from './keep.ts'
import type { Lane, Need } from './lane.ts'
import { Line, type Place } from './line.ts'
import type { Features } from './shape.ts'

/** At most so many cells let a lane go at once, and so many lanes of one line are looked at. */
const DUE = 16

/** What a lane's first job finds at a cell. */
export interface Found extends Need {
  /** The earliest slot, µs; infinite where a place is missing. */
  readonly slotUs: number
}

/** What a queue knows of its groups and of jobs. */
export interface Waiters {
  readonly turns: GroupTurns
  readonly features: Features
  weightOf(group: string): number | undefined
  /** What the first job of a lane needs, in the order of the limits. */
  needsOf(lane: Lane): readonly Need[]
  /** Whether the jobs of a lane may need different cells. */
  areMixed(): boolean
}

/**
 * What held lanes wait for.
 *
 * Decisions where the design is silent:
 * - a lane parks at the first cell, in the order of the limits, where it is behind another one; else at the first of those with
 *   the latest slot; or, where another is closed at that, at the first closed one, until all are open
 * - it takes a place in each line of its cells, stands in that of one cell, and once it is let go in all of them: so rivals
 *   there wait for it
 * - behind a lane that was let go, the next one may go one service of it later, whatever became of it; where a cell has places
 *   no more lanes are let go than these are enough for, counting those that are being tried and stand before
 * - lanes of a group that is held as a whole give up their places once they are looked at, and are ready inside their group
 * - a cell that was kept for a lane is so no longer once the lane stands in its line
 * - a lane whose jobs may need different cells gives up its places when its first job is another one
 * - without lines a lane competes again at its slot, or as soon as its first job may be another one
 */
export class Waiting {
  readonly #of: Waiters
  /** All with a line. */
  readonly #cells = new Set<Cell>()
  /** When the first of what is set for a cell ends, as far as that was not looked at since, µs. */
  readonly #ends = new Map<Cell, number>()

  constructor(of: Waiters) {
    this.#of = of
  }

  /** What the lane's first job finds at each of its cells. */
  look(lane: Lane, nowUs: number): Found[] {
    const limiting = this.#of.needsOf(lane).filter(({ cell }) => !cell.isOff(nowUs))
    return limiting.map((need) => ({ ...need, slotUs: need.cell.slot(need.cost, nowUs, need.tier) }))
  }

  /**
   * A lane's turn: either all of its cells let it go by a time, or it parks at one of them.
   * @returns its slot; undefined if it was parked
   */
  try(lane: Lane, byUs: number, nowUs: number): number | undefined {
    const found = this.look(lane, nowUs)
    const behind = this.#of.features.lines
      ? found.filter(({ cell }) => this.#isBehind(lane, cell, nowUs))[0]
      : undefined
    const latest = latestOf(found.filter(({ slotUs }) => slotUs > nowUs))
    const slotUs = latest?.slotUs ?? 0
    const untilUs = openFrom(found, slotUs, nowUs)
    if (!behind && untilUs <= byUs) return untilUs
    if (this.#of.features.lines) {
      const closed = found.find((one) => opensUs(one, slotUs, nowUs) > slotUs)
      const held = closed && slotUs <= byUs ? { ...closed, slotUs: untilUs } : (latest as Found)
      this.#stand(lane, found, behind ?? held, { isBehind: behind !== undefined, nowUs })
    } else {
      lane.state = 'until'
      lane.untilUs = untilUs
    }
    return undefined
  }

  /** Whether a lane would stand behind another one, by what is known without changing anything. */
  wouldBeBehind(lane: Lane, cell: Cell, nowUs: number): boolean {
    const { line } = cell
    if (!line || !this.#of.features.lines) return false
    const keptFor = this.#of.features.keep ? line.isKeptFor(nowUs) : undefined
    if (keptFor) return keptFor !== lane
    if (this.#follows(lane, cell, line, nowUs)) return true
    if (this.#waitsForHeld(cell, line, nowUs)) return line.first() !== lane
    const first = line.inOrder.find(({ group }) => group === lane.group || this.#mayTakeTurn(group))
    return first !== undefined && first !== lane && (line.members.get(first) as number) <= this.#tagOf(lane, cell, line)
  }

  /**
   * The lane before it was let go, whatever became of it: two that let each other go at once would do so for ever. Or a job
   * of another tier was looked at since it was found when the cell is due: its state counts by that tier.
   */
  #follows(lane: Lane, cell: Cell, line: Line, nowUs: number): boolean {
    const { dueUs, followsAtUs } = line
    if (!line.members.has(lane) || dueUs === undefined || dueUs <= nowUs) return false
    return dueUs === followsAtUs || cell.limit.tiers !== undefined
  }

  /** A group was held as a whole while a lane of it was the first: only when that could have gone, the next one is let go. */
  #waitsForHeld(cell: Cell, line: Line, nowUs: number): boolean {
    const { dueUs } = line
    const first = line.first()
    if (!first || dueUs === undefined || dueUs <= nowUs || this.#mayTakeTurn(first.group)) return false
    return dueUs <= cell.slot(first.ticket?.places.get(cell)?.units ?? 0, nowUs)
  }

  #tagOf(lane: Lane, cell: Cell, line: Line): number {
    return lane.ticket?.places.get(cell)?.tag ?? line.tagOf(lane.group)
  }

  #isBehind(lane: Lane, cell: Cell, nowUs: number): boolean {
    const keptFor = cell.line?.isKeptFor(nowUs)
    if (keptFor) return keptFor !== lane
    for (let i = 0; i < DUE; i++) {
      const { line } = cell
      const first = line?.first()
      if (!line || !first || first === lane) return false
      if ((line.members.get(first) as number) > this.#tagOf(lane, cell, line)) return false
      if (first.group === lane.group || this.#mayTakeTurn(first.group)) return true
      this.#giveUp(first, nowUs)
    }
    return true
  }

  /** Whether a group is ready, or waits for its lanes alone. */
  #mayTakeTurn(name: string): boolean {
    const group = this.#of.turns.group(name)
    return group.state === 'ready' || this.#of.turns.waitsForLanes(group)
  }

  #stand(
    lane: Lane,
    found: readonly Found[],
    waited: Found,
    { isBehind, nowUs }: { isBehind: boolean; nowUs: number },
  ): void {
    const { ticket = { cell: waited.cell, isLetGo: false, places: new Map<Cell, Place>() } } = lane
    for (const { cell, cost, tier } of found) {
      if (!cell.line && cell !== waited.cell) continue
      cell.line ??= new Line(nowUs)
      this.#cells.add(cell)
      const step = stepOf(cost, this.#of.weightOf(lane.group))
      const place = ticket.places.get(cell) ?? cell.line.takePlace(lane, step, cost)
      place.units = cost
      place.tier = cell.tierOf(tier, nowUs)
      ticket.places.set(cell, place)
    }
    for (const cell of ticket.places.keys()) {
      if (cell !== waited.cell) this.#stepOut(lane, cell, ticket.isLetGo && cell !== ticket.cell)
    }
    const line = waited.cell.line as Line
    line.stand(lane, (ticket.places.get(waited.cell) as Place).tag)
    ticket.cell = waited.cell
    ticket.isLetGo = false
    lane.ticket = ticket
    lane.state = 'line'
    const { keep, keepBudget } = this.#of.features
    if (keep && !isBehind) keepOthers(lane, found, waited, { nowUs, keepBudget })
    const wasKept = line.keep?.lane === lane
    if (wasKept) line.endKeep(nowUs)
    if (line.first() === lane)
      line.dueUs = (isBehind ? line.keep?.untilUs : undefined) ?? (waited.slotUs > nowUs ? waited.slotUs : 0)
    else if (wasKept) line.dueUs = 0
  }

  /**
   * The cell is for the next lane at once; where the lane only passed through, when it was due before. Places may have been
   * counted for it wherever it stood.
   */
  #stepOut(lane: Lane, cell: Cell, hasPassed = false): void {
    const line = cell.line as Line
    if (!line.members.has(lane)) return
    const isFirst = line.first() === lane
    line.stepOut(lane)
    if (line.size === 0) line.dueUs = undefined
    else if ((isFirst || cell.isPlaces) && !(hasPassed && Number.isFinite(line.dueUs))) line.dueUs = 0
  }

  #giveBack(lane: Lane, cell: Cell, place: Place, nowUs: number): void {
    const line = cell.line as Line
    line.giveBack(lane, place)
    const wasKept = line.keep?.lane === lane
    if (wasKept) line.endKeep(nowUs)
    this.#endIfOver(cell)
    if (wasKept && line.size > 0) line.dueUs = 0
  }

  #endIfOver(cell: Cell): void {
    if (!cell.line) return
    if (cell.line.size === 0) cell.line.dueUs = undefined
    if (!cell.line.isOver) return
    cell.line = undefined
    this.#cells.delete(cell)
  }

  /** The lane gives up all its places. */
  leave(lane: Lane, nowUs: number): void {
    const { ticket } = lane
    if (!ticket) return
    lane.ticket = undefined
    for (const [cell, place] of ticket.places) {
      this.#stepOut(lane, cell)
      this.#giveBack(lane, cell, place, nowUs)
    }
  }

  /** A group is held as a whole: its lanes that were let go give up their places. */
  letOthersPass(group: Group, nowUs: number): void {
    for (const lane of this.#of.turns.readyLanes(group).slice(0, DUE)) this.leave(lane, nowUs)
  }

  /** A group is paused: lines in which its lanes stand first go on without them. */
  letLinesPass(group: Group): void {
    for (const lane of this.#of.turns.lanes) {
      const line = lane.group === group.name && lane.state === 'line' ? lane.ticket?.cell.line : undefined
      if (line?.first() === lane) line.dueUs = 0
    }
  }

  #giveUp(lane: Lane, nowUs: number): void {
    this.leave(lane, nowUs)
    this.#of.turns.laneReady(lane)
  }

  /** Whether lanes wait for jobs to end. */
  get isFull(): boolean {
    return [...this.#cells].some(({ line }) => line?.dueUs === Number.POSITIVE_INFINITY)
  }

  /** When the first lane may compete again, µs; infinite if that depends on the end of a job. */
  get nextUs(): number {
    const times = this.#of.features.lines
      ? [...this.#cells].map(({ line }) => line?.dueUs ?? Number.POSITIVE_INFINITY)
      : this.#until.map(({ untilUs }) => untilUs)
    return Math.min(Number.POSITIVE_INFINITY, ...times)
  }

  get #until(): readonly Lane[] {
    return this.#of.turns.lanes.filter(({ state }) => state === 'until')
  }

  /**
   * Some cells that are due by a time let one lane go each; without lines, some lanes compete again.
   * @returns how many lanes
   */
  release(byUs: number, nowUs: number, most = DUE): number {
    if (!this.#of.features.lines) return this.#releaseWithoutLines(byUs, most)
    const due = [...this.#cells].flatMap((cell) => {
      const atUs = cell.line?.dueUs ?? Number.POSITIVE_INFINITY
      return atUs <= byUs ? [{ cell, atUs }] : []
    })
    due.sort((one, other) => one.atUs - other.atUs || (one.cell.id < other.cell.id ? -1 : 1))
    return due.slice(0, most).filter(({ cell, atUs }) => this.#releaseOf(cell, atUs, nowUs)).length
  }

  #releaseWithoutLines(byUs: number, most: number): number {
    const order = (one: Lane, other: Lane) => one.untilUs - other.untilUs || (one.id < other.id ? -1 : 1)
    const due = this.#until
      .filter(({ untilUs }) => untilUs <= byUs)
      .sort(order)
      .slice(0, most)
    for (const lane of due) this.#of.turns.laneReady(lane)
    return due.length
  }

  #releaseOf(cell: Cell, atUs: number, nowUs: number): boolean {
    for (let i = 0; i < DUE; i++) {
      const { line } = cell
      if (!line) return false
      if (line.isKeptFor(nowUs) && cell.holds(nowUs)) {
        line.dueUs = line.keep?.untilUs
        return false
      }
      line.endKeep(nowUs)
      let room = cell.room
      const lane = line.inOrder.slice(0, DUE).find(({ ticket }) => {
        room -= Math.min(ticket?.places.get(cell)?.units ?? 0, cell.limit.concurrency ?? 0)
        return !ticket?.isLetGo
      })
      if (lane && room < 0) {
        line.dueUs = Number.POSITIVE_INFINITY
        return false
      }
      if (!lane) {
        // The next departure says when another one may go.
        line.dueUs = undefined
        return false
      }
      if (this.#mayTakeTurn(lane.group)) {
        this.#letGo(lane, cell, atUs, nowUs)
        return true
      }
      this.#giveUp(lane, nowUs)
    }
    return false
  }

  #letGo(lane: Lane, cell: Cell, atUs: number, nowUs: number): void {
    const ticket = lane.ticket as NonNullable<Lane['ticket']>
    ticket.isLetGo = true
    for (const [other, { tag }] of ticket.places) if (other !== cell) (other.line as Line).stand(lane, tag)
    this.#of.turns.laneReady(lane)
    const { units } = ticket.places.get(cell) as Place
    const line = cell.line as Line
    const isPaced = !cell.isPlaces && cell.holds(nowUs)
    line.dueUs = isPaced ? Math.max(nowUs, atUs) + Math.ceil(cell.serviceUs(units, nowUs)) : 0
    line.followsAtUs = line.dueUs
  }

  /** The lane has left with a charge of these cells. */
  served(lane: Lane, needs: readonly Need[], nowUs: number): void {
    const { ticket } = lane
    lane.ticket = undefined
    for (const { cell, cost, tier } of needs) {
      const { line } = cell
      if (!line) continue
      line.serve(lane, ticket?.places.get(cell), stepOf(cost, this.#of.weightOf(lane.group)))
      ticket?.places.delete(cell)
      if (line.keep?.lane === lane) line.endKeep(nowUs)
      this.#endIfOver(cell)
      const next = line.first()
      const place = next?.ticket?.places.get(cell)
      if (!place || next?.ticket?.isLetGo) continue
      line.dueUs = place.tier === cell.tierOf(tier, nowUs) ? cell.slot(place.units, nowUs, tier) : nowUs
    }
    // Of limits that do not count it any more.
    for (const [cell, place] of ticket?.places ?? []) {
      this.#stepOut(lane, cell)
      this.#giveBack(lane, cell, place, nowUs)
    }
  }

  /** Something was given back or freed: the first of the line may go sooner. */
  freed(cell: Cell): void {
    if (cell.line) cell.line.dueUs = 0
  }

  /** When the first of the cells with a line allows something else, by the end of what is set for it, µs. */
  get firstEndUs(): number {
    const cell = this.#ending(Number.POSITIVE_INFINITY).find(({ line }) => line)
    return (cell && this.#ends.get(cell)) ?? Number.POSITIVE_INFINITY
  }

  /** What is set for some cells has ended. */
  endOwn(nowUs: number): void {
    for (const cell of this.#ending(nowUs)) {
      cell.forgetEnded(nowUs)
      this.#ends.delete(cell)
      this.noteOwn(cell)
    }
  }

  /** Something else is set for a cell. */
  noteOwn(cell: Cell): void {
    this.#noteEnd(cell)
    this.freed(cell)
  }

  /** The limits change: what has ended until then counts by the old ones. */
  forgetEnded(nowUs: number): void {
    for (const [cell, endUs] of [...this.#ends]) {
      if (endUs > nowUs) continue
      cell.forgetEnded(nowUs)
      this.#noteEnd(cell)
    }
  }

  #noteEnd(cell: Cell): void {
    if (cell.ownEndUs < Number.POSITIVE_INFINITY) this.#ends.set(cell, cell.ownEndUs)
    else this.#ends.delete(cell)
  }

  /** The first cells for which something ends by a time. */
  #ending(byUs: number): Cell[] {
    const ends = [...this.#ends].filter(([, endUs]) => endUs <= byUs)
    ends.sort(([one, oneUs], [other, otherUs]) => oneUs - otherUs || (one.id < other.id ? -1 : 1))
    return ends.slice(0, DUE).map(([cell]) => cell)
  }

  /** The first job of a lane is another one, or may be. @returns whether the lane waits in a line */
  noteHead(lane: Lane, nowUs: number): boolean {
    if (lane.state === 'until') this.#of.turns.laneReady(lane)
    if (lane.ticket && this.#of.areMixed()) {
      this.leave(lane, nowUs)
      return false
    }
    // What the new one takes is not known until it is tried.
    for (const place of lane.ticket?.places.values() ?? []) place.units = 0
    if (lane.state !== 'line') return false
    const { line, isPlaces } = (lane.ticket as NonNullable<Lane['ticket']>).cell
    if (line && (isPlaces || line.first() === lane)) line.dueUs = 0
    return true
  }

  /** The limits are others: all lines are looked at anew. */
  allDue(): void {
    for (const { line } of this.#cells) if (line?.dueUs !== undefined) line.dueUs = 0
  }
}

/** The first time from one on, µs, when all are above 0 as far as they follow the clock. */
function openFrom(found: readonly Found[], fromUs: number, nowUs: number): number {
  if (fromUs === 0 || fromUs === Number.POSITIVE_INFINITY) return fromUs
  const untilUs = Math.max(...found.map((one) => opensUs(one, fromUs, nowUs)))
  return untilUs > fromUs ? openFrom(found, untilUs, nowUs) : fromUs
}

function opensUs({ cell, tier }: Found, fromUs: number, nowUs: number): number {
  return cell.opensUs(fromUs, nowUs, tier)
}

/** The one with the latest slot, of several the first. */
function latestOf(found: readonly Found[]): Found | undefined {
  let latest: Found | undefined
  for (const one of found) if (!latest || one.slotUs > latest.slotUs) latest = one
  return latest
}
