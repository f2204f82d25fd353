// What always holds of the model, looked up anew and apart from how it decides.

import { encodeRule } from '../../../src/limits/definition.ts'
import type { Cell } from './cell.ts'
import type { Decision, NewJob } from './decisions.ts'
import type { ReferenceKeys, Taken } from './reference.ts'
import { isPlaces, type Limit, namesBy, type Shape } from './shape.ts'

const TRIES = 64
const DUE = 16

function fail(what: string): never {
  throw new Error(what)
}

/** What a job takes of the limits of a shape: by limit and values of its keys. */
export function takenBy(job: NewJob, shape: Shape): Map<string, number> {
  const taken = new Map<string, number>()
  for (const limit of shape.limits ?? []) {
    const values = namesBy(limit).map((name) => (name === 'group' ? job.group : job.keys[name]))
    const cost = limit.unit === undefined ? job.cost : (job.costs?.[limit.unit] ?? 1)
    if (values.includes(undefined) || cost === 0) continue
    const places = Math.min(limit.concurrency ?? 0, Math.ceil(cost))
    taken.set(nameOf(limit, values as string[]), isPlaces(limit) ? places : cost)
  }
  return taken
}

/** Of a cell, or of a limit without a key. */
function nameOf({ name }: Limit, values: readonly string[]): string {
  if (values.length === 0) return name
  return `${name}:${values.length === 1 ? values[0] : values.map((value) => `${value.length}:${value}`).join('')}`
}

/** Watches a model from outside. */
export class Invariants {
  readonly #model: ReferenceKeys
  readonly #jobs = new Map<string, NewJob>()
  readonly #running = new Map<string, Map<string, number>>()
  readonly #charged = new Map<string, number>()
  #shape: Shape

  constructor(model: ReferenceKeys, shape: Shape) {
    this.#model = model
    this.#shape = shape
  }

  /** Does the operation and looks at all that it may have changed. */
  around(decision: Decision, act: () => Taken): Taken {
    const before = { ...this.#model.counts }
    if (decision.verb === 'add') for (const job of decision.jobs) this.#jobs.set(job.id, job)
    if (decision.verb === 'shape') this.#shape = decision.shape
    if ('id' in decision && ['finish', 'back', 'return'].includes(decision.verb)) this.#running.delete(decision.id)
    const taken = act()
    if (decision.verb === 'take') {
      this.#checkBounds(before, decision.wanted)
      this.#checkWhole(taken, decision.atUs)
      this.#checkWorking(taken, decision.atUs)
    }
    for (const cell of this.#cells) this.#charged.set(cell.id, cell.charges.length)
    this.#checkPlaces()
    this.#checkLanes()
    return taken
  }

  get #cells(): readonly Cell[] {
    return [...this.#model.cells, ...this.#model.queueCells]
  }

  /** P8 */
  #checkBounds(before: ReferenceKeys['counts'], wanted: number): void {
    const { tries, releases } = this.#model.counts
    if (tries - before.tries > TRIES * wanted) fail(`${tries - before.tries} tries for ${wanted} jobs`)
    if (releases - before.releases > (TRIES + DUE) * wanted)
      fail(`${releases - before.releases} releases for ${wanted} jobs`)
  }

  /** P2: a job that leaves is charged once at its slot by each limit that it is subject to, and by no other. */
  #checkWhole({ departures }: Taken, nowUs: number): void {
    const expected = new Map<string, string[]>()
    for (const { id, slotUs } of departures) {
      const taken = takenBy(this.#jobs.get(id) as NewJob, this.#shape)
      this.#running.set(id, taken)
      for (const [name, cost] of taken) expected.set(name, [...(expected.get(name) ?? []), `${cost} at ${slotUs}`])
    }
    for (const cell of this.#cells) {
      const name = cell.id
      const charges = cell.charges.slice(this.#charged.get(name) ?? 0).map(({ cost, slotUs }) => `${cost} at ${slotUs}`)
      if (cell.isOff(nowUs)) expected.delete(name)
      if (charges.join() !== (expected.get(name) ?? []).join())
        fail(`${name} was charged ${charges.join()}, not ${expected.get(name)?.join()}`)
      expected.delete(name)
    }
    for (const name of expected.keys()) fail(`${name} was not charged`)
  }

  /** P6 */
  #checkWorking({ departures, untilUs, heldId }: Taken, nowUs: number): void {
    if (departures.length > 0 || untilUs === nowUs || heldId !== undefined) return
    const [job] = this.#model.departable(nowUs)
    if (job) fail(`${job.id} of group ${job.group} could leave`)
  }

  /** P3, but for limits that were lowered meanwhile. */
  #checkPlaces(): void {
    for (const limit of (this.#shape.limits ?? []).filter(isPlaces)) {
      const used = new Map<string, number>()
      for (const taken of this.#running.values())
        for (const [name, cost] of taken)
          if (name.startsWith(`${limit.name}:`)) used.set(name, (used.get(name) ?? 0) + cost)
      const most = Math.max(limit.concurrency as number, this.#mostPlaces.get(limit.name) ?? 0)
      this.#mostPlaces.set(limit.name, most)
      for (const [name, cost] of used) if (cost > most) fail(`${name} has ${cost} places taken of ${most}`)
    }
  }

  readonly #mostPlaces = new Map<string, number>()

  /** P9 */
  #checkLanes(): void {
    const standing = new Map<string, string>()
    for (const cell of this.#model.cells) {
      const { line } = cell
      if (!line) continue
      for (const [lane, tag] of line.members) {
        const { ticket } = lane
        if (ticket?.places.get(cell)?.tag !== tag) fail(`${lane.id} stands in a line without its ticket`)
        if (ticket?.isLetGo) continue
        if (standing.has(lane.id)) fail(`${lane.id} stands in two lines`)
        standing.set(lane.id, cell.id)
        if (ticket.cell !== cell) fail(`${lane.id} stands in the line of ${cell.id}, not in that of its ticket`)
      }
    }
    const lanes = this.#model.lanes
    for (const lane of lanes) {
      if (lane.jobs.length === 0) fail(`${lane.id} has no jobs`)
      if ((lane.state === 'line') !== standing.has(lane.id)) fail(`${lane.id} is ${lane.state}, and also in a line`)
      standing.delete(lane.id)
    }
    for (const id of standing.keys()) fail(`${id} is gone and stands in a line`)
    for (const { name, state, lanes: own } of this.#model.groups) {
      const isReady = [...own.values()].some((lane) => lane.state === 'ready')
      if (state === 'idle' && isReady) fail(`group ${name} has a lane that is ready and is not`)
      if (own.size === 0 && state !== 'idle' && name !== '') fail(`group ${name} is ${state} without jobs`)
    }
  }
}

/** P1: no cell lets more pass than its limit in any time. Of windows that slide by two counts, at most twice as much. */
export function checkCharges(cell: Cell): void {
  const { limit } = cell
  if (isPlaces(limit)) return
  const wire = encodeRule(ruleOf(limit))
  const charges = cell.charges.filter(({ cost }) => cost > 0).sort((a, b) => a.slotUs - b.slotUs)
  if (wire.interval !== undefined) {
    checkBucket(cell.id, charges, wire.interval, wire.burst as number)
    return
  }
  const [most, windowUs] = [wire.limit as number, wire.window as number]
  const windowOf = ({ slotUs }: { slotUs: number }) => Math.floor(slotUs / windowUs)
  for (const from of charges) {
    const inIt = charges.filter((charge) =>
      wire.algorithm === 'fixed-window'
        ? windowOf(charge) === windowOf(from)
        : charge.slotUs >= from.slotUs && charge.slotUs < from.slotUs + windowUs,
    )
    const sum = inIt.reduce((all, { cost }) => all + cost, 0)
    const times = wire.algorithm === 'sliding-window-counter' ? 2 : 1
    if (sum > times * most) fail(`${cell.id} let ${sum} pass in a window of ${most}`)
  }
}

function checkBucket(
  id: string,
  charges: readonly { slotUs: number; cost: number }[],
  intervalUs: number,
  burst: number,
): void {
  let [level, atUs] = [0, 0]
  for (const { slotUs, cost } of charges) {
    level = Math.max(0, level - (slotUs - atUs) / intervalUs) + cost
    atUs = slotUs
    // Slots are whole µs, not before those that are charged.
    if (level > burst + 2 / intervalUs) fail(`${id} let ${level} pass at once, with a burst of ${burst}`)
  }
}

function ruleOf({ name: _name, by: _by, unit: _unit, ...rule }: Limit) {
  return rule
}
