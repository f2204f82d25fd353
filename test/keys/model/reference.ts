// Keys, lanes, cells and lines of one queue in plain TypeScript: what the Lua is compared with. Everything is looked up by
// going through all lanes.
//
// A cell is the state of one limit for one value of its key; a lane is the jobs of one group with equal values of all keys that
// limits name. Groups take turns (group-turns.ts), inside its turn the lanes of a group do (lane.ts). A lane is tried: all of its
// cells let it go, or it parks at one of them (waiting.ts), where it has a place in a line (line.ts). A cell whose turn a lane
// has may be kept for it while another one comes (keep.ts). Before that, the queue's own rate and limits hold the chosen job
// (queue-gate.ts).
//
// Decisions where the design is silent:
// - as groups today, lanes are released and tried up to the next slot of the queue; only where no lane is ready one may go
//   ahead up to the horizon, by the time of its cell. Otherwise a job for later would be granted before one for now.
// - a group is tried before its lane: paused, full, its rate for the first job of its first lane, then the cells
// - 64 lanes are tried for a job; 16 and the wanted jobs are released by a call, with those for jobs that go ahead
// - a job that does not leave because of the queue's rate or limits stays where it is
// - the lane of jobs that have neither a group nor a key comes when a call that takes a job finds it, as those jobs do today
// - any removal of a job has a group that its rate holds looked at again, as today
// - what was charged before a change of the shape, or up to a time after it, is not given back; a place always is
// - a settled cost corrects the rate of the group and the cells; the queue's own rate and limits are not corrected here, as
//   their own models have that

import type { Cell } from './cell.ts'
import { chargeRate, reshapeRate, settleRate, slotByRate, takeBackRate } from './group-rate.ts'
import { type Group, GroupTurns, type State } from './group-turns.ts'
import { headOf, insertInto, type Job } from './job.ts'
import type { Lane, Need } from './lane.ts'
import { laneId } from './lane-id.ts'
import { Meanings } from './meanings.ts'
import { QueueGate, type QueueSlot } from './queue-gate.ts'
import { ALL_FEATURES, checkShape, type Features, type GroupSettings, type Shape } from './shape.ts'
import { Waiting } from './waiting.ts'

/** At most this many groups become ready, or lanes are tried for one job; at most so many lines and groups are renewed. */
const DUE = 16
const TRIES = 64
const STALE = 100
/** A lane that is too coarse is split by so many jobs at a time. */
const SPLIT = 100
/** Of a group that is held as a whole, the cells of so many released lanes pass on at once. */
const PASSED_ON = 16
/** Slots so close behind a change of the shape, µs, may have been granted before it. */
const AHEAD_US = 200_000

export interface Departure {
  readonly id: string
  readonly slotUs: number
}

export interface Taken {
  readonly departures: readonly Departure[]
  /** When to ask again if fewer left than were wanted, µs; undefined if that depends on the end of a job or of a pause. */
  readonly untilUs?: number
  /** The job whose turn it is, where the queue's rate or limits hold it. */
  readonly heldId?: string
}

/** A job that has left. */
interface Left {
  readonly job: Job
  readonly group: Group
  readonly slotUs: number
  readonly needs: readonly Need[]
  readonly cells: readonly Cell[]
  /** Names its places. */
  readonly lease: number
  /** What is known of its cost, by unit; '' is that of the rate. */
  readonly known: Map<string, number>
}

/** What one call may still do. */
interface Budget {
  releases: number
  hasBegun: boolean
}

export class ReferenceKeys {
  readonly #features: Features
  readonly #turns = new GroupTurns()
  readonly #waiting: Waiting
  readonly #gate: QueueGate
  readonly #meanings: Meanings
  readonly #left = new Map<string, Left>()
  #shape: Shape
  /** Since when the shape is in force, µs; 0 if it has never changed. */
  #changedUs = 0
  #isStale = false
  readonly #staleGroups = new Set<Group>()
  readonly #staleLanes = new Set<Lane>()
  #numbers = 0
  #leases = 0

  /** @param nowUs when the queue begins */
  constructor(shape: Shape, features: Features = ALL_FEATURES, nowUs = 0) {
    checkShape(shape, features)
    this.#shape = shape
    this.#features = features
    this.#turns.ageingMs = shape.ageingMs
    this.#gate = new QueueGate(shape, nowUs)
    this.#meanings = new Meanings(shape)
    this.#waiting = new Waiting({
      ...{ turns: this.#turns, features, needsOf: (lane: Lane) => this.#meanings.of(this.#headOf(lane)).needs },
      weightOf: (group: string) => this.#settings(this.#turns.group(group)).weight,
    })
  }

  /** @returns the number of the job */
  add(job: Omit<Job, 'number' | 'sinceUs'>, nowUs: number): number {
    this.#numbers += 1
    this.#insert({ ...job, number: this.#numbers, sinceUs: nowUs }, nowUs)
    return this.#numbers
  }

  /** One by one, in their order. */
  addBulk(jobs: readonly Omit<Job, 'number' | 'sinceUs'>[], nowUs: number): void {
    for (const job of jobs) this.add(job, nowUs)
  }

  /** What leaves next, as one call of a worker that wants so many jobs, granted up to a horizon ahead, µs. */
  take(nowUs: number, { horizonUs = 0, wanted = 1 } = {}): Taken {
    const departures: Departure[] = []
    const budget = { releases: DUE + wanted, hasBegun: false }
    while (departures.length < wanted) {
      const { concurrency = Number.POSITIVE_INFINITY } = this.#shape
      if (this.#left.size >= concurrency) return { departures }
      const decision = this.#decide(nowUs, nowUs + horizonUs, budget)
      if (!('id' in decision)) return { departures, ...decision }
      departures.push(decision)
    }
    return { departures }
  }

  /** A running job ends: its places are free. */
  finish(id: string, nowUs: number): void {
    const { group, needs, lease } = this.#left.get(id) as Left
    this.#left.delete(id)
    group.running.delete(id)
    if (group.state === 'full') this.#turns.enter(group)
    for (const { cell, cost } of needs) {
      if (!cell.isPlaces) continue
      cell.free(cost, nowUs, lease)
      cell.line?.noteEnd(nowUs)
      this.#waiting.passOn(cell, nowUs)
    }
  }

  /** A running job goes back to its place, having started: to be tried again, or because it stalled. */
  back(id: string, nowUs: number): void {
    const { job } = this.#left.get(id) as Left
    this.finish(id, nowUs)
    this.#insert(job, nowUs)
  }

  /** A job goes back before it has started: what it was charged is given back where that is exact. */
  returnUnstarted(id: string, nowUs: number): void {
    const { job, group, slotUs, needs } = this.#left.get(id) as Left
    const isUnder = this.#isUnder(slotUs)
    this.#gate.takeBack(job, slotUs, isUnder, nowUs)
    const refunded = needs.filter(({ cell, cost }) => isUnder && !cell.isPlaces && cell.takeBack(cost, slotUs, nowUs))
    for (const { cell } of refunded) this.#waiting.passOn(cell, nowUs)
    if (refunded.length > 0) this.#renewLane(job, nowUs)
    this.#endPause(group, nowUs)
    const settings = this.#settings(group)
    const isRefunded = this.#isUnder(slotUs, group) && takeBackRate(group, settings, job.cost, slotUs, nowUs)
    if (isRefunded && group.state === 'limited') this.#turns.enter(group)
    this.back(id, nowUs)
  }

  /** @param unit '' for that of the rate */
  settle(id: string, unit: string, actual: number, nowUs: number): void {
    const { job, group, slotUs, cells, known } = this.#left.get(id) as Left
    const change = actual - (known.get(unit) ?? (unit === '' ? job.cost : (job.costs?.[unit] ?? 1)))
    known.set(unit, actual)
    if (change === 0) return
    this.#endPause(group, nowUs)
    if (unit === '') {
      const isUnder = this.#isUnder(slotUs, group)
      const isSettled = settleRate(group, this.#settings(group), { change, slotUs, isUnder }, nowUs)
      if (isSettled && group.state === 'limited') this.#turns.enter(group)
    }
    const counted = cells.filter(({ limit, isPlaces }) => !isPlaces && (limit.unit ?? '') === unit)
    for (const cell of counted) {
      cell.settle(change, slotUs, this.#isUnder(slotUs), nowUs)
      this.#waiting.passOn(cell, nowUs)
    }
    if (counted.length > 0) this.#renewLane(job, nowUs)
  }

  /** Without lines, only the job's own lane is looked at again when something was given back. */
  #renewLane(job: Job, nowUs: number): void {
    const lane = this.#turns.group(job.group).lanes.get(laneId(job.group, this.#meanings.of(job).parts))
    if (lane?.state === 'until') this.#waiting.noteHead(lane, nowUs)
  }

  /** A waiting job is removed. */
  remove(id: string, nowUs: number): void {
    const lane = this.#turns.lanes.find(({ jobs }) => jobs.some((job) => job.id === id)) as Lane
    const at = lane.jobs.findIndex((job) => job.id === id)
    lane.jobs.splice(at, 1)
    const group = this.#turns.group(lane.group)
    if (lane.jobs.length === 0) this.#dropLane(lane, nowUs)
    else this.#waiting.noteHead(lane, nowUs)
    if (group.state === 'limited') this.#turns.enter(group)
  }

  /** What applies to a group instead of the defaults, field by field. */
  setGroup(name: string, own: GroupSettings, nowUs: number): void {
    const group = this.#turns.group(name)
    reshapeRate(group, this.#settings(group), nowUs)
    group.own = own
    reshapeRate(group, this.#settings(group), nowUs)
    group.changedUs = nowUs
    this.#renewGroup(group, nowUs)
  }

  /** @param untilUs infinite for good */
  pauseGroup(name: string, nowUs: number, untilUs = Number.POSITIVE_INFINITY): void {
    const group = this.#turns.group(name)
    group.pausedUntilUs = untilUs
    group.changedUs = nowUs
    this.#renewGroup(group, nowUs)
  }

  resumeGroup(name: string, nowUs: number): void {
    const group = this.#turns.group(name)
    group.pausedUntilUs = 0
    group.changedUs = nowUs
    this.#renewGroup(group, nowUs)
  }

  #endPause(group: Group, nowUs: number): void {
    if (group.pausedUntilUs === 0 || group.pausedUntilUs > nowUs) return
    group.changedUs = group.pausedUntilUs
    group.pausedUntilUs = 0
  }

  /** What applies to a group is another: it is looked at again, and one that is paused is not ready for a moment. */
  #renewGroup(group: Group, nowUs: number): void {
    if (this.#turns.isHeld(group)) this.#turns.enter(group)
    if (group.state === 'ready' && group.pausedUntilUs > nowUs) this.#hold(group, 'paused', group.pausedUntilUs, nowUs)
  }

  /** Another shape: names of keys come and go, limits, rates and numbers change. What waits is looked at anew. */
  setShape(shape: Shape, nowUs: number): void {
    checkShape(shape, this.#features)
    for (const group of this.#turns.all) reshapeRate(group, this.#settings(group), nowUs)
    this.#shape = shape
    this.#meanings.change(shape)
    for (const group of this.#turns.all) reshapeRate(group, this.#settings(group), nowUs)
    this.#turns.ageingMs = shape.ageingMs
    this.#gate.change(shape, nowUs)
    this.#changedUs = nowUs
    this.#isStale = true
  }

  get waiting(): readonly Job[] {
    return this.#turns.lanes.flatMap(({ jobs }) => jobs)
  }

  get running(): readonly string[] {
    return [...this.#left.keys()]
  }

  /** For the properties: how many lanes were tried and released. */
  readonly counts = { tries: 0, releases: 0 }

  get lanes(): readonly Lane[] {
    return this.#turns.lanes
  }

  get groups(): readonly Group[] {
    return this.#turns.all
  }

  get cells(): readonly Cell[] {
    return this.#meanings.cells
  }

  get queueCells(): readonly Cell[] {
    return this.#gate.cells
  }

  /** The first jobs that could leave now by the rules, found among all lanes. */
  departable(nowUs: number): readonly Job[] {
    const { concurrency = Number.POSITIVE_INFINITY } = this.#shape
    if (this.#left.size >= concurrency || this.#gate.soonUs(nowUs) > nowUs) return []
    return this.#turns.lanes.flatMap((lane) => {
      if (lane.state === 'until' && lane.untilUs > nowUs) return []
      const [group, head] = [this.#turns.group(lane.group), this.#headOf(lane)]
      const settings = this.#settings(group)
      const isFull = group.running.size >= (this.#concurrencyOf(group) ?? Number.POSITIVE_INFINITY)
      // A group waits for its rate with its first job: none of its other lanes passes that.
      const isLimited = group.state === 'limited' || slotByRate(group, settings, head.cost, nowUs) > nowUs
      if (isFull || isLimited || group.pausedUntilUs > nowUs) return []
      const isPassed = ({ cell }: Need) => lane.ticket?.cellId === cell.id && cell.line?.first() !== lane
      const waits = this.#waiting
        .look(lane, nowUs)
        .some((found) => found.slotUs > nowUs || found.isBehind || (lane.state === 'line' && isPassed(found)))
      if (waits) return []
      return this.#gate.slot(head, nowUs, nowUs).slotUs > nowUs ? [] : [head]
    })
  }

  #decide(nowUs: number, latestUs: number, budget: Budget): Departure | Omit<Taken, 'departures'> {
    const soonUs = Math.max(nowUs, this.#gate.soonUs(nowUs))
    this.#begin(nowUs, budget)
    for (const lane of this.#turns.group('').lanes.values()) if (lane.state === 'unseen') this.#arrive(lane, nowUs)
    this.#releaseDue(Math.min(soonUs, latestUs), nowUs, budget)
    for (let i = 0; i < TRIES; i++) {
      let group = this.#turns.firstIn('ready')
      let byUs = soonUs
      if (!group) {
        const untilUs = this.#heldUntil(latestUs, nowUs)
        if (untilUs > latestUs) return untilUs < Number.POSITIVE_INFINITY ? { untilUs } : {}
        if (!this.#releaseNext(latestUs, budget, nowUs)) return { untilUs: nowUs }
        group = this.#turns.firstIn('ready')
        byUs = latestUs
      }
      const choice = group && this.#try(group, byUs, nowUs)
      if (!choice) continue
      const job = this.#headOf(choice.lane)
      const slot = this.#gate.slot(job, choice.slotUs, nowUs)
      if (slot.slotUs > latestUs) return { untilUs: slot.slotUs, heldId: job.id }
      return this.#depart(choice.lane, job, slot, nowUs)
    }
    return { untilUs: nowUs }
  }

  /** What has to be done once before the first job of a call is chosen. */
  #begin(nowUs: number, budget: Budget): void {
    if (budget.hasBegun) return
    budget.hasBegun = true
    if (this.#isStale) this.#markStale()
    this.#renewStale(nowUs)
    for (const group of this.#turns.all) this.#endPause(group, nowUs)
    for (const group of this.#turns.in('paused').slice(0, DUE)) if (group.atUs <= nowUs) this.#turns.enter(group)
  }

  #releaseDue(dueUs: number, nowUs: number, budget: Budget): void {
    for (const group of this.#turns.in('limited').slice(0, DUE)) if (group.atUs <= dueUs) this.#turns.enter(group)
    while (this.#waiting.nextUs <= dueUs && budget.releases > 0) this.#release(budget, nowUs)
  }

  /** When the first of what is held may be ready, µs: nothing is granted ahead of the end of a pause. */
  #heldUntil(latestUs: number, nowUs: number): number {
    const pausedUs = this.#turns.firstIn('paused')?.atUs ?? Number.POSITIVE_INFINITY
    const limitedUs = this.#turns.firstIn('limited')?.atUs ?? Number.POSITIVE_INFINITY
    const first = Math.min(limitedUs, this.#waiting.nextUs)
    return first <= latestUs ? first : Math.min(first, pausedUs + latestUs - nowUs)
  }

  /** No lane is ready: the first that may go ahead. @returns false if this call may release no more */
  #releaseNext(latestUs: number, budget: Budget, nowUs: number): boolean {
    const limited = this.#turns.firstIn('limited')
    if (limited && limited.atUs <= Math.min(latestUs, this.#waiting.nextUs)) {
      this.#turns.enter(limited)
      return true
    }
    if (budget.releases === 0) return false
    this.#release(budget, nowUs)
    return true
  }

  #release(budget: Budget, nowUs: number): void {
    budget.releases -= 1
    this.counts.releases += 1
    this.#waiting.releaseNext(nowUs)
  }

  /** Nothing if the group, or its first lane, is held: the turn stays with the next one that may go. */
  #try(group: Group, byUs: number, nowUs: number): { readonly lane: Lane; readonly slotUs: number } | undefined {
    const lane = this.#turns.firstLane(group)
    if (!lane) {
      this.#turns.hold(group, 'idle', 0)
      return undefined
    }
    if (this.#split(lane, nowUs)) return undefined
    const settings = this.#settings(group)
    const most = this.#concurrencyOf(group)
    if (most !== undefined && group.running.size >= most) {
      this.#hold(group, 'full', nowUs, nowUs)
      return undefined
    }
    const rateUs = slotByRate(group, settings, this.#headOf(lane).cost, nowUs)
    if (rateUs > byUs) {
      this.#hold(group, 'limited', rateUs, nowUs)
      return undefined
    }
    this.counts.tries += 1
    const slotUs = this.#waiting.try(lane, byUs, nowUs)
    return slotUs === undefined ? undefined : { lane, slotUs: Math.max(slotUs, rateUs) }
  }

  /** Lanes that were released and cannot go now leave their cells to the next ones. */
  #hold(group: Group, state: State, atUs: number, nowUs: number): void {
    this.#turns.hold(group, state, atUs)
    for (const lane of this.#turns.readyLanes(group).slice(0, PASSED_ON)) this.#waiting.noteHeld(lane, nowUs)
  }

  #depart(lane: Lane, job: Job, slot: QueueSlot, nowUs: number): Departure {
    const group = this.#turns.group(lane.group)
    const { slotUs } = slot
    const { needs, cells } = this.#meanings.of(job)
    this.#leases += 1
    this.#gate.charge(job, slot, nowUs)
    const settings = this.#settings(group)
    chargeRate(group, settings, job.cost, slotUs, nowUs)
    this.#waiting.serve(lane, needs, nowUs)
    for (const { cell, cost } of needs) cell.charge(cost, slotUs - nowUs, nowUs, this.#leases)
    lane.jobs.splice(lane.jobs.indexOf(job), 1)
    group.running.add(job.id)
    this.#left.set(job.id, { job, group, slotUs, needs, cells, lease: this.#leases, known: new Map() })
    this.#turns.serve(group, lane, job.cost, settings.weight)
    if (lane.jobs.length === 0) group.lanes.delete(lane.id)
    this.#waiting.served(lane, needs, nowUs)
    // That no other of these waits is found at the next turn of jobs without a group.
    if (!this.#isPlain(lane) || lane.jobs.length > 0) this.#follow(group, nowUs)
    return { id: job.id, slotUs }
  }

  /** A job of the group has left: its rate may hold the next one at once. */
  #follow(group: Group, nowUs: number): void {
    this.#turns.laneLeft(group)
    const lane = group.state === 'ready' ? this.#turns.firstLane(group) : undefined
    if (!lane) return
    const rateUs = slotByRate(group, this.#settings(group), this.#headOf(lane).cost, nowUs)
    if (rateUs > nowUs) this.#hold(group, 'limited', rateUs, nowUs)
  }

  #insert(job: Job, nowUs: number): void {
    const group = this.#turns.group(job.group)
    const { parts } = this.#meanings.of(job)
    const id = laneId(job.group, parts)
    const known = group.lanes.get(id)
    if (!known) {
      const lane: Lane = {
        ...{ id, group: job.group, parts, jobs: [job], turn: 0, state: 'unseen', untilUs: 0 },
        ...{ ticket: undefined, misses: 0 },
      }
      group.lanes.set(id, lane)
      if (!this.#isPlain(lane)) this.#arrive(lane, nowUs)
      return
    }
    insertInto(known.jobs, job)
    // Where jobs age, the first of all is not always the next, and one that goes back may be the next without being the first.
    if (known.jobs[0] !== job && this.#headOf(known) !== job) return
    if (known.state === 'ready') this.#turns.laneReady(known, nowUs)
    else this.#waiting.noteHead(known, nowUs)
  }

  #arrive(lane: Lane, nowUs: number): void {
    this.#turns.toBack(this.#turns.group(lane.group), lane)
    this.#turns.laneReady(lane, nowUs)
  }

  /** Of jobs that have neither a group nor a key. */
  #isPlain({ group, parts }: Lane): boolean {
    return group === '' && parts.length === 0
  }

  /**
   * A name of a key has come: the lane's jobs may belong to several, which their own keys tell. Of the first hundred, those
   * that do go to their lanes.
   */
  #split(lane: Lane, nowUs: number): boolean {
    const belongs = (job: Job) => this.#meanings.of(job).parts.every((part) => lane.parts.includes(part))
    if (belongs(this.#headOf(lane))) return false
    const moved = lane.jobs.slice(0, SPLIT).filter((job) => !belongs(job))
    for (const job of moved) lane.jobs.splice(lane.jobs.indexOf(job), 1)
    if (lane.jobs.length === 0) this.#dropLane(lane, nowUs)
    for (const job of moved) this.#insert(job, nowUs)
    return true
  }

  #dropLane(lane: Lane, nowUs: number): void {
    const group = this.#turns.group(lane.group)
    group.lanes.delete(lane.id)
    this.#waiting.leave(lane, nowUs)
    this.#turns.laneLeft(group)
  }

  /** All groups that were limited or full are looked at again, and all lines and lanes that wait for a time. */
  #markStale(): void {
    this.#isStale = false
    for (const group of this.#turns.in('full')) this.#turns.enter(group)
    for (const group of this.#turns.in('limited')) this.#staleGroups.add(group)
    for (const lane of this.#turns.lanes) if (lane.state === 'until') this.#staleLanes.add(lane)
    this.#waiting.markStale()
  }

  #renewStale(nowUs: number): void {
    for (const group of [...this.#staleGroups].slice(0, STALE)) {
      this.#staleGroups.delete(group)
      if (group.state === 'limited') this.#turns.enter(group)
    }
    const lanes = [...this.#staleLanes].sort((a, b) => a.untilUs - b.untilUs || (a.id < b.id ? -1 : 1))
    for (const lane of lanes.slice(0, STALE)) {
      this.#staleLanes.delete(lane)
      if (lane.state === 'until') this.#turns.laneReady(lane, nowUs)
    }
    this.#waiting.renewStale(STALE, nowUs, (cell) => this.#meanings.isKnown(cell))
  }

  #headOf({ jobs }: Lane): Job {
    return headOf(jobs, this.#shape.ageingMs) as Job
  }

  #settings(group: Group): GroupSettings {
    return group.name === '' ? {} : { ...this.#shape.groups, ...group.own }
  }

  #concurrencyOf(group: Group): number | undefined {
    return this.#settings(group).concurrency ?? undefined
  }

  /** Whether a job with this slot was certainly charged under the shape of now, and what was set for its group. */
  #isUnder(slotUs: number, group?: Group): boolean {
    const changedUs = Math.max(this.#changedUs, group?.changedUs ?? 0)
    return changedUs === 0 || slotUs > changedUs + AHEAD_US
  }
}
