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
// - as groups today, lanes are let go and tried up to the next slot of the queue; only where no group is ready one may go ahead
//   up to the horizon, by the time of its cell. Otherwise a job for later would be granted before one for now.
// - a group is tried before its lanes: paused, full, its rate for the first job of each, then the cells
// - 64 lanes are tried for a job; 16 cells let a lane go at once
// - a job that does not leave because of the queue's rate or limits stays where it is
// - without lines, the lane of jobs that have neither a group nor a key comes when a call that takes a job finds it, as those
//   jobs do in a queue without keys
// - any removal of a job has a group that its rate holds looked at again, as today
// - jobs stay in the lanes of the limits under which they came; which cells they need follows from the limits of now
// - what was charged before a change of the shape, or up to a time after it, is not given back; a place always is. Of a job
//   that goes back before it has started, it is known under which shape the cells were charged
// - a settled cost corrects the rate of the group and the cells; the queue's own rate and limits are not corrected here, as
//   their own models have that

import type { Cell, OwnValues } from './cell.ts'
import { chargeRate, reshapeRate, settleRate, slotByRate, takeBackRate } from './group-rate.ts'
import { type Group, GroupTurns, type State } from './group-turns.ts'
import { headOf, insertInto, type Job } from './job.ts'
import type { Lane, Need } from './lane.ts'
import { laneId } from './lane-id.ts'
import { Meanings } from './meanings.ts'
import { QueueGate, type QueueSlot } from './queue-gate.ts'
import { ALL_FEATURES, checkShape, type Features, type GroupSettings, isPlaces, type Shape } from './shape.ts'
import { Waiting } from './waiting.ts'

/** At most this many groups become ready, or lanes are tried for one job; at most so many groups and lanes are renewed. */
const DUE = 16
const TRIES = 64
const STALE = 100
/** How often holders of places are looked at, µs. */
const VERIFY_US = 1_000_000
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
  /** When the shape under which it left came, µs. */
  readonly changedUs: number
  /** Names its places. */
  readonly lease: number
  /** What is known of its cost, by unit; '' is that of the rate. */
  readonly known: Map<string, number>
}

/** Times of a call, µs: of the clock, of the next slot of the queue, and of the horizon. */
interface Times {
  readonly nowUs: number
  readonly soonUs: number
  readonly latestUs: number
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
  /** Whether lanes may be tried up to the horizon in this call. */
  #goesAhead = false
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
      areMixed: () => this.#meanings.areMixed,
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

  /**
   * What leaves next, as one call of a worker that wants so many jobs, granted up to a horizon ahead, µs.
   * @param options.aheadUs how far ahead the next slot of the queue is, by default that of its rate
   */
  take(nowUs: number, { horizonUs = 0, wanted = 1, aheadUs = 0 } = {}): Taken {
    const departures: Departure[] = []
    const latestUs = nowUs + horizonUs
    this.#goesAhead = false
    this.#begin(nowUs)
    while (departures.length < wanted) {
      const { concurrency = Number.POSITIVE_INFINITY } = this.#shape
      if (this.#left.size >= concurrency) return { departures }
      const soonUs = Math.max(nowUs + aheadUs, this.#gate.soonUs(nowUs))
      const decision = this.#decide({ nowUs, soonUs, latestUs })
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
      this.#waiting.freed(cell)
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
    const { job, group, slotUs, needs, changedUs } = this.#left.get(id) as Left
    const isUnder = this.#isUnder(slotUs)
    this.#gate.takeBack(job, slotUs, isUnder, nowUs)
    for (const cell of this.#meanings.of(job).cells) cell.touch(nowUs, job.tier)
    const refunded = needs.filter(({ cell, cost }) => {
      const isCounted = !cell.isPlaces && !cell.isOff(nowUs) && changedUs === this.#changedUs
      return isCounted && isSince(slotUs, cell.ownSinceUs(nowUs)) && cell.takeBack(cost, slotUs, nowUs, job.tier)
    })
    for (const { cell } of refunded) this.#waiting.freed(cell)
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
    for (const cell of cells) cell.touch(nowUs, job.tier)
    const change = actual - (known.get(unit) ?? (unit === '' ? job.cost : (job.costs?.[unit] ?? 1)))
    known.set(unit, actual)
    if (change === 0) return
    this.#endPause(group, nowUs)
    if (unit === '') {
      const isUnder = this.#isUnder(slotUs, group)
      const isSettled = settleRate(group, this.#settings(group), { change, slotUs, isUnder }, nowUs)
      if (isSettled && group.state === 'limited') this.#turns.enter(group)
    }
    const counted = cells.filter((cell) => !cell.isPlaces && !cell.isOff(nowUs) && (cell.limit.unit ?? '') === unit)
    for (const cell of counted) {
      const isUnder = this.#isUnderOwn(slotUs, cell, nowUs)
      if (cell.settle(change, slotUs, isUnder, { nowUs, tier: job.tier })) this.#waiting.freed(cell)
    }
    if (counted.length === 0) return
    this.#renewLane(job, nowUs)
    if (group.state === 'limited') this.#turns.enter(group)
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
    if (lane.jobs.length === 0) {
      group.lanes.delete(lane.id)
      this.#waiting.leave(lane, nowUs)
    } else if (!this.#waiting.noteHead(lane, nowUs) && lane.state !== 'unseen') {
      lane.state = 'ready'
    }
    if (group.lanes.size === 0) this.#turns.hold(group, 'idle', 0)
    else if (group.state === 'limited') this.#turns.enter(group)
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

  /**
   * Sets what a limit allows for one value of its keys.
   * @param values undefined lifts what is set
   */
  setLimit(name: string, keys: Readonly<Record<string, string>>, values: OwnValues | undefined, nowUs: number): void {
    const cell = this.#meanings.cell(name, keys)
    cell.setOwn(values, nowUs)
    this.#waiting.noteOwn(cell)
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
    group.changedUs = Math.max(group.changedUs, group.pausedUntilUs)
    group.pausedUntilUs = 0
  }

  /** What applies to a group is another: it is looked at again, and one that is paused is not ready for a moment. */
  #renewGroup(group: Group, nowUs: number): void {
    if (this.#turns.isHeld(group)) this.#turns.enter(group)
    if (group.pausedUntilUs <= nowUs) return
    if (group.state === 'ready') this.#hold(group, 'paused', group.pausedUntilUs, nowUs)
    this.#waiting.letLinesPass(group)
  }

  /** Another shape: names of keys come and go, limits, rates and numbers change. What waits is looked at anew. */
  setShape(shape: Shape, nowUs: number): void {
    checkShape(shape, this.#features)
    for (const group of this.#turns.all) reshapeRate(group, this.#settings(group), nowUs)
    this.#shape = shape
    this.#waiting.forgetEnded(nowUs)
    this.#meanings.change(shape, nowUs)
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

  /** For the properties: how many lanes were tried and let go. */
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
      // By age it is the next one, but came behind others: the lane is looked at when these may go.
      if (lane.state === 'line' && head !== lane.jobs[0]) return []
      const settings = this.#settings(group)
      const isFull = group.running.size >= (this.#concurrencyOf(group) ?? Number.POSITIVE_INFINITY)
      // A group waits for its rate with its first job: none of its other lanes passes that.
      // Where places are limits of keys, it is only checked of groups that do not wait for lanes alone.
      const isHeld = group.state === 'limited' && (this.#features.places || !this.#turns.waitsForLanes(group))
      const isLimited = isHeld || slotByRate(group, settings, head.cost, nowUs) > nowUs
      if (isFull || isLimited || group.pausedUntilUs > nowUs) return []
      const waits = this.#waiting
        .look(lane, nowUs)
        .some(({ cell, slotUs }) => slotUs > nowUs || this.#waiting.wouldBeBehind(lane, cell, nowUs))
      if (waits) return []
      return this.#gate.slot(head, nowUs, nowUs).slotUs > nowUs ? [] : [head]
    })
  }

  #decide({ nowUs, soonUs, latestUs }: Times): Departure | Omit<Taken, 'departures'> {
    for (const lane of this.#turns.group('').lanes.values()) if (lane.state === 'unseen') this.#arrive(lane, nowUs)
    const dueUs = Math.min(soonUs, latestUs)
    for (const group of this.#turns.in('limited').slice(0, DUE)) if (group.atUs <= dueUs) this.#turns.enter(group)
    if (this.#waiting.nextUs <= dueUs) this.counts.releases += this.#waiting.release(dueUs, nowUs)
    let tries = TRIES
    for (let i = 0; i < TRIES && tries > 0; i++) {
      let group = this.#turns.firstIn('ready')
      let isAhead = this.#goesAhead
      if (!group) {
        const limited = this.#turns.firstIn('limited')
        const limitedUs = limited?.atUs ?? Number.POSITIVE_INFINITY
        if (this.#waiting.nextUs <= Math.min(limitedUs, latestUs)) {
          isAhead = true
          this.counts.releases += this.#waiting.release(latestUs, nowUs, 1)
          // What was let go has to be tried like this by the next decisions, too: it would be held again.
          this.#goesAhead = this.#features.lines
        } else if (limited && limitedUs <= latestUs) {
          this.#turns.enter(limited)
          isAhead = true
        } else {
          return this.#heldUntil(Math.min(limitedUs, this.#waiting.nextUs), { nowUs, latestUs })
        }
        group = this.#turns.firstIn('ready')
      }
      const before = this.counts.tries
      const choice = group && this.#try(group, isAhead ? latestUs : soonUs, nowUs, tries)
      tries -= this.counts.tries - before
      if (!choice) continue
      const job = this.#headOf(choice.lane)
      const slot = this.#gate.slot(job, Math.max(choice.slotUs, soonUs), nowUs)
      if (slot.slotUs > latestUs) return { untilUs: slot.slotUs, heldId: job.id }
      return this.#depart(choice.lane, job, slot, nowUs)
    }
    return { untilUs: nowUs }
  }

  /** What has to be done once before the first job of a call is chosen. */
  #begin(nowUs: number): void {
    if (this.#isStale) this.#markStale(nowUs)
    this.#renewStale()
    for (const group of this.#turns.all) this.#endPause(group, nowUs)
    this.#waiting.endOwn(nowUs)
    for (const group of this.#turns.in('paused').slice(0, DUE)) if (group.atUs <= nowUs) this.#turns.enter(group)
    // Its jobs are looked at from time to time: here, all of them run.
    const full = this.#turns.firstIn('full')
    if (full && full.atUs <= nowUs - VERIFY_US) full.atUs = nowUs
  }

  /**
   * When the first of what is held may be ready: nothing is granted ahead of the end of a pause, and holders of places are
   * looked at from time to time.
   */
  #heldUntil(firstUs: number, { nowUs, latestUs }: Pick<Times, 'nowUs' | 'latestUs'>): Omit<Taken, 'departures'> {
    const paused = this.#turns.firstIn('paused')
    const verifyUs = this.#waiting.isFull ? nowUs + VERIFY_US : Number.POSITIVE_INFINITY
    const endUs = Math.min(paused?.atUs ?? Number.POSITIVE_INFINITY, this.#waiting.firstEndUs)
    const untilUs = Math.min(firstUs, verifyUs, endUs + latestUs - nowUs)
    return paused || untilUs < Number.POSITIVE_INFINITY ? { untilUs } : {}
  }

  /** Nothing if the group, or all its lanes, are held: the turn stays with the next one that may go. */
  #try(
    group: Group,
    byUs: number,
    nowUs: number,
    most: number,
  ): { readonly lane: Lane; readonly slotUs: number } | undefined {
    const settings = this.#settings(group)
    if (group.pausedUntilUs > nowUs) {
      this.#hold(group, 'paused', group.pausedUntilUs, nowUs)
      return undefined
    }
    const isFull = group.running.size >= (this.#concurrencyOf(group) ?? Number.POSITIVE_INFINITY)
    for (let i = 0; i < most; i++) {
      const lane = this.#turns.firstLane(group)
      if (!lane) {
        this.#turns.noLane(group)
        return undefined
      }
      this.counts.tries += 1
      const head = this.#headOf(lane)
      const rateUs = slotByRate(group, settings, head.cost, nowUs)
      if (!isFull) for (const cell of this.#meanings.of(head).cells) cell.touch(nowUs, head.tier)
      if (isFull || rateUs > byUs) {
        this.#hold(group, isFull ? 'full' : 'limited', isFull ? nowUs : rateUs, nowUs)
        return undefined
      }
      const slotUs = this.#waiting.try(lane, byUs, nowUs)
      if (slotUs !== undefined) return { lane, slotUs: Math.max(slotUs, rateUs) }
    }
    return undefined
  }

  #hold(group: Group, state: State, atUs: number, nowUs: number): void {
    this.#turns.hold(group, state, atUs)
    this.#waiting.letOthersPass(group, nowUs)
  }

  #depart(lane: Lane, job: Job, slot: QueueSlot, nowUs: number): Departure {
    const group = this.#turns.group(lane.group)
    const { slotUs } = slot
    const { needs: all, cells } = this.#meanings.of(job)
    const needs = all.filter(({ cell }) => !cell.isOff(nowUs))
    this.#leases += 1
    this.#gate.charge(job, slot, nowUs)
    const settings = this.#settings(group)
    chargeRate(group, settings, job.cost, slotUs, nowUs)
    for (const { cell, cost } of needs)
      cell.charge(cost, slotUs - nowUs, nowUs, { lease: this.#leases, tier: job.tier })
    lane.jobs.splice(lane.jobs.indexOf(job), 1)
    group.running.add(job.id)
    const charged = { slotUs, needs, cells, changedUs: this.#changedUs }
    this.#left.set(job.id, { job, group, ...charged, lease: this.#leases, known: new Map() })
    this.#waiting.served(lane, needs, nowUs)
    this.#turns.serve(group, job.cost, settings.weight)
    if (lane.jobs.length === 0) {
      group.lanes.delete(lane.id)
      // That no other of the plain jobs waits is found at their next turn.
      if (!this.#turns.firstLane(group) && !this.#isPlain(lane)) this.#turns.noLane(group)
    } else {
      this.#numbers += 1
      lane.turn = this.#numbers
    }
    if (!this.#features.lines) this.#follow(group, nowUs)
    return { id: job.id, slotUs }
  }

  /** Without lines, the rate of a group and a time hold the next one at once. */
  #follow(group: Group, nowUs: number): void {
    const lane = group.state === 'ready' ? this.#turns.firstLane(group) : undefined
    if (!lane) return
    const rateUs = slotByRate(group, this.#settings(group), this.#headOf(lane).cost, nowUs)
    if (rateUs > nowUs) this.#turns.hold(group, 'limited', rateUs)
    else this.#waiting.try(lane, nowUs, nowUs)
    if (group.state === 'ready' && !this.#turns.firstLane(group)) this.#turns.noLane(group)
  }

  #insert(job: Job, nowUs: number): void {
    const group = this.#turns.group(job.group)
    const { parts } = this.#meanings.of(job)
    const id = laneId(job.group, parts)
    const known = group.lanes.get(id)
    const lane: Lane = known ?? {
      ...{ id, group: job.group, parts, jobs: [], turn: job.number, state: 'unseen', untilUs: 0, ticket: undefined },
    }
    group.lanes.set(id, lane)
    insertInto(lane.jobs, job)
    // With ageing, too, a new job is the next one only if it is before all others here.
    if (lane.jobs[0] !== job || this.#waiting.noteHead(lane, nowUs)) return
    if (lane.state === 'unseen' && this.#isPlain(lane)) return
    lane.state = 'ready'
    if (group.state === 'idle') this.#turns.begin(group, nowUs)
    else if (group.state === 'limited') this.#turns.enter(group)
  }

  #arrive(lane: Lane, nowUs: number): void {
    const group = this.#turns.group(lane.group)
    lane.state = 'ready'
    if (group.state === 'idle') this.#turns.begin(group, nowUs)
    else if (group.state === 'limited') this.#turns.enter(group)
  }

  /** Of jobs that have neither a group nor a key, in a queue without keys. */
  #isPlain({ group, parts }: Lane): boolean {
    return !this.#features.lines && group === '' && parts.length === 0
  }

  /** All groups that were limited or full are looked at again, and all lines and lanes that wait for a time. */
  #markStale(nowUs: number): void {
    this.#isStale = false
    for (const group of this.#turns.in('full')) this.#turns.enter(group)
    for (const group of this.#turns.in('limited')) this.#staleGroups.add(group)
    for (const lane of this.#turns.lanes) if (lane.state === 'until') this.#staleLanes.add(lane)
    this.#waiting.allDue()
    this.#trackPlaces(nowUs)
  }

  /** Running jobs take the places that they need by now, the last one first: their cells count by their tiers from here on. */
  #trackPlaces(nowUs: number): void {
    if (!this.#shape.limits?.some(isPlaces)) return
    for (const { job } of [...this.#left.values()].reverse())
      for (const cell of this.#meanings.of(job).cells) cell.touch(nowUs, job.tier)
  }

  #renewStale(): void {
    for (const group of [...this.#staleGroups].slice(0, STALE)) {
      this.#staleGroups.delete(group)
      if (group.state === 'limited') this.#turns.enter(group)
    }
    const lanes = [...this.#staleLanes].sort((a, b) => a.untilUs - b.untilUs || (a.id < b.id ? -1 : 1))
    for (const lane of lanes.slice(0, STALE)) {
      this.#staleLanes.delete(lane)
      if (lane.state === 'until') this.#turns.laneReady(lane)
    }
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

  /** The same under what applies to a cell. */
  #isUnderOwn(slotUs: number, cell: Cell, nowUs: number): boolean {
    return this.#isUnder(slotUs) && isSince(slotUs, cell.ownSinceUs(nowUs))
  }

  /** Whether a job with this slot was certainly charged under the shape of now, and what was set for its group. */
  #isUnder(slotUs: number, group?: Group): boolean {
    return isSince(slotUs, Math.max(this.#changedUs, group?.changedUs ?? 0))
  }
}

/** Whether a slot was certainly granted after a change, µs; 0 if there was none. */
function isSince(slotUs: number, changedUs: number): boolean {
  return changedUs === 0 || slotUs > changedUs + AHEAD_US
}
