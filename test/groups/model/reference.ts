// Start-time fair queueing over groups with rates, limits, limits on running jobs, weights and pauses, in plain
// TypeScript: what `lua/groups/queue-groups.lua` is compared with. Everything is looked up by going through all groups.

import {
  type Bucket,
  type Charge,
  ceil,
  check,
  checkLimit,
  costUnder,
  earliest,
  givenBack,
  intervalOf,
  type Limit,
  type Rate,
  reshaped,
  type Seen,
  settleLimit,
  takeBack,
  trueTat,
} from './charges.ts'

/** What a cost of 1 and a weight of 1 add to a tag. */
const UNIT = 2 ** 20
/** At most this many groups become ready, or are tried, by one call. */
const DUE = 16
const TRIES = 64
/** Slots so close behind a change of a rate, µs, may have been granted before it. */
export const AHEAD_US = 200_000

/** What applies to a group. */
export interface Settings {
  readonly rate?: Rate | null
  readonly burst?: number
  readonly concurrency?: number | null
  readonly weight?: number
  readonly paused?: boolean
  /** By a worker or by feedback, for a time: no job leaves, the rate is at most so much, at most so many jobs run. */
  readonly limited?: boolean
  readonly slowed?: Rate
  readonly crowded?: number
}

type Entry = { readonly value: unknown; readonly untilUs: number }

/** A job that has left. */
interface Left {
  readonly job: Job
  readonly group: Group
  readonly slotUs: number
  /** How many had left before it. */
  readonly attempt: number
  /** What it was charged, by limit, and under the rate. */
  readonly charges: readonly (Charge | undefined)[]
  readonly seen: { trueCost: number } | undefined
  /** What is known of its cost: that of the rate, and its tokens. */
  readonly known: { cost: number; tokens: number }
}

interface Job {
  readonly id: string
  readonly number: number
  readonly priority: number
  /** Since when it waits, µs; 0 once it was removed, as below. */
  sinceUs: number
  /** 1 once it was removed by a script that knows nothing of groups: its group finds out when it is to leave. */
  cost: number
  tokens: number
  /** By when it has to start, µs: otherwise it is only failed. */
  deadlineUs: number | undefined
  isGone: boolean
}

type State = 'empty' | 'ready' | 'limited' | 'full' | 'paused'

interface Group {
  readonly name: string
  readonly jobs: Job[]
  readonly running: Set<string>
  state: State
  /** Start tag if it is ready; otherwise the tag that it keeps. */
  tag: number
  /** When its hold ends, or since when it is full, µs. */
  at: number
  /** The job without a group that is held. */
  held: Job | undefined
  bucket: Bucket | undefined
  readonly seen: Seen[]
  /** Since when what applies to it is in force, µs; 0 if it has never changed. */
  changedUs: number
  /** What was set for it, by field, and until when. */
  readonly own: Map<keyof Settings, Entry>
  /** What each limit has let pass. */
  readonly charges: readonly Charge[][]
}

/** A job that left, with its slot; one that could not start in time; or how long none may leave. */
export type Decision =
  | { readonly id: string; readonly slotUs: number }
  | { readonly id: string; readonly isLate: true }
  | { readonly untilUs: number | undefined }

export class ReferenceGroups {
  readonly #groups = new Map<string, Group>()
  readonly #left = new Map<string, Left>()
  readonly #defaults: Settings
  readonly #limits: readonly Limit[]
  readonly #ageingMs: number | undefined
  readonly #isTrusting: boolean
  #virtual = 0
  #lastTag = 0
  /** As in the Lua: some may go before the first. */
  #numbers = 2 ** 20
  #plainNumbers = 0
  #departures = 0

  /**
   * @param ageingMs after which a job counts as one level more important; undefined where jobs do not age
   * @param isTrusting whether a group is held at its turn, not before, if its next job could go at the cost of the last one
   */
  constructor(defaults: Settings, limits: readonly Limit[], ageingMs: number | undefined, isTrusting = false) {
    this.#defaults = defaults
    this.#limits = limits
    this.#ageingMs = ageingMs
    this.#isTrusting = isTrusting
  }

  /**
   * @param name '' for a job without a group
   * @returns its number among those of its kind
   */
  add(name: string, job: Pick<Job, 'id' | 'priority' | 'sinceUs' | 'cost' | 'deadlineUs'>, tokens = 1): number {
    const number = name === '' ? ++this.#plainNumbers : ++this.#numbers
    this.#insert(this.#group(name), { ...job, number, tokens, isGone: false }, job.sinceUs)
    return number
  }

  depart(nowUs: number, soonUs: number, horizonUs: number): Decision {
    for (;;) {
      const decision = this.#decide(nowUs, soonUs, horizonUs)
      if (decision) return decision
    }
  }

  /** Undefined if a job was found to be gone. */
  #decide(nowUs: number, soonUs: number, horizonUs: number): Decision | undefined {
    const soon = nowUs + soonUs
    const latest = nowUs + horizonUs
    this.#end(nowUs, this.#groups.values())
    for (const group of this.#in('paused')) if (group.at <= nowUs) this.#enter(group)
    const ungrouped = this.#group('')
    if (ungrouped.jobs.length > 0 && ungrouped.state === 'empty') this.#enter(ungrouped)
    // Another job without a group than the one that is held may go sooner.
    const first = this.#head(ungrouped)
    if (first && ungrouped.state === 'limited' && ungrouped.held !== first) this.#enter(ungrouped)
    for (const group of this.#in('limited').slice(0, DUE)) if (group.at <= Math.min(soon, latest)) this.#enter(group)
    for (let i = 0; i < TRIES; i++) {
      let [group] = this.#in('ready')
      let by = soon
      if (!group) {
        const [limited] = this.#in('limited')
        // Nothing is granted ahead of the end of a pause, or of what was set.
        const endUs = Math.min(this.#in('paused')[0]?.at ?? Number.POSITIVE_INFINITY, this.#firstEnd('limited', 'full'))
        const untilUs = Math.min(limited?.at ?? Number.POSITIVE_INFINITY, endUs + horizonUs)
        if (!limited) {
          const known = untilUs < Number.POSITIVE_INFINITY || this.#in('paused').length > 0
          return { untilUs: known ? untilUs : undefined }
        }
        if (limited.at > latest) {
          if (limited.jobs.length === 0) {
            this.#hold(limited, 'empty', 0)
            continue
          }
          if (!this.#head(limited)?.isGone) return { untilUs }
          this.#shift(limited)
          if (limited.jobs.length === 0) this.#hold(limited, 'empty', 0)
          else this.#enter(limited)
          continue
        }
        this.#enter(limited)
        group = limited
        by = latest
      }
      const slotUs = this.#slotOf(group, nowUs, by)
      if (slotUs === undefined) continue
      if (this.#head(group)?.isGone) {
        this.#shift(group)
        if (group.jobs.length === 0) this.#hold(group, 'empty', 0)
        return undefined
      }
      return this.#serve(group, nowUs, Math.max(soon, slotUs))
    }
    return { untilUs: 0 }
  }

  finish(id: string): void {
    const { group } = this.#left.get(id) as { group: Group }
    this.#left.delete(id)
    group.running.delete(id)
    if (group.state === 'full') this.#enter(group)
  }

  /** @returns the number of the job among those of its queue */
  back(id: string, nowUs: number): number {
    const { group, job } = this.#left.get(id) as { group: Group; job: Job }
    this.finish(id)
    this.#insert(group, job, nowUs)
    return job.number
  }

  /**
   * It goes back before it has started: the bucket of its group gets its units back if no slot was granted behind its
   * own, and so does each of its limits.
   */
  late(id: string, nowUs: number): number {
    const { group, job, slotUs, charges: own, seen } = this.#left.get(id) as Left
    const charged = this.#limits.map((limit, i) =>
      takeBack(limit, group.charges[i] as Charge[], slotUs, costUnder(limit, job), nowUs),
    )
    for (const charge of own) if (charge) charge.trueCost = 0
    if (seen) seen.trueCost = 0
    for (const [i, limit] of this.#limits.entries()) checkLimit(limit, group.charges[i] as Charge[], nowUs)
    const isRefunded = this.#takeBackFromBucket(group, job, slotUs, nowUs)
    if (group.state === 'limited' && (isRefunded || charged.some(Boolean))) this.#enter(group)
    return this.back(id, nowUs)
  }

  /**
   * What a running job has cost is known: what it cost more is charged now, what it cost less is given back as far as
   * it has not come back by itself.
   * @param unit of the rate, or tokens
   */
  settle(id: string, unit: 'cost' | 'tokens', actual: number, nowUs: number): void {
    const left = this.#left.get(id) as Left
    const { group, known } = left
    const change = actual - known[unit]
    known[unit] = actual
    if (change === 0) return
    let isCorrected = unit === 'cost' && this.#settleBucket(left, change, nowUs)
    for (const [i, limit] of this.#limits.entries()) {
      if (limit.isOfTokens !== (unit === 'tokens')) continue
      settleLimit(limit, group.charges[i] as Charge[], left.slotUs, change, nowUs)
      const charge = left.charges[i]
      if (charge) charge.trueCost = actual
      checkLimit(limit, group.charges[i] as Charge[], nowUs)
      isCorrected = true
    }
    if (isCorrected && group.state === 'limited') this.#enter(group)
  }

  attempt(id: string): number {
    return (this.#left.get(id) as Left).attempt
  }

  /** @returns whether the bucket of its group got its units back */
  #takeBackFromBucket(group: Group, { cost }: Job, slotUs: number, nowUs: number): boolean {
    if (group.name === '' || group.bucket?.last !== slotUs) return false
    this.#end(nowUs, [group])
    const bucket = this.#reshape(group, nowUs)
    if (!bucket || !this.#isCharged(group, slotUs)) return false
    bucket.tat -= ceil(cost * bucket.intervalUs)
    check('the rate', Math.max(nowUs, bucket.tat), trueTat(group.seen))
    return true
  }

  /** @returns whether its group has a rate */
  #settleBucket({ group, slotUs, seen }: Left, change: number, nowUs: number): boolean {
    if (group.name === '') return false
    this.#end(nowUs, [group])
    const bucket = this.#reshape(group, nowUs)
    if (!bucket) return false
    if (change > 0) {
      bucket.tat = Math.max(bucket.tat, nowUs) + ceil(change * bucket.intervalUs)
    } else if (this.#isCharged(group, slotUs)) {
      bucket.tat -= givenBack(bucket, -change, slotUs, nowUs)
    }
    // Not all of known.cost: what became known while no rate held is of no rate.
    if (seen) seen.trueCost += change
    check('the rate', Math.max(nowUs, bucket.tat), trueTat(group.seen))
    return true
  }

  /** Whether a job with this slot was certainly charged at the rate of now. */
  #isCharged({ changedUs }: Group, slotUs: number): boolean {
    return changedUs === 0 || slotUs > changedUs + AHEAD_US
  }

  /** Removes a waiting job without a word to its group. Jobs without a group have no line of their own to be told. */
  remove(name: string, id: string): void {
    const { jobs } = this.#group(name)
    const job = jobs.find((one) => one.id === id) as Job
    if (name === '') {
      jobs.splice(jobs.indexOf(job), 1)
      return
    }
    job.cost = 1
    job.tokens = 1
    job.sinceUs = 0
    job.deadlineUs = undefined
    job.isGone = true
  }

  /** As `setGroup`, instead of all that was set before. */
  set(name: string, own: Settings, nowUs: number, untilUs = Number.POSITIVE_INFINITY): void {
    const group = this.#group(name)
    this.#change(group, nowUs, () => {
      group.own.clear()
      for (const field of Object.keys(own) as (keyof Settings)[]) group.own.set(field, { value: own[field], untilUs })
    })
    if (['limited', 'full', 'paused'].includes(group.state)) this.#enter(group)
    this.#holdAsSet(group)
  }

  /** By a worker or by feedback: what was reported before still applies, if it holds the group more or longer. */
  hold(name: string, field: 'limited' | 'slowed' | 'crowded', value: unknown, nowUs: number, untilUs: number): void {
    const group = this.#group(name)
    this.#change(group, nowUs, () => {
      const before = group.own.get(field) ?? { value, untilUs }
      const values = [before.value, value]
      const least = {
        limited: () => true,
        slowed: () => (values as Rate[]).toSorted((a, b) => intervalOf(b) - intervalOf(a))[0],
        crowded: () => Math.min(...(values as number[])),
      }
      group.own.set(field, { value: least[field](), untilUs: Math.max(untilUs, before.untilUs) })
    })
    this.#holdAsSet(group)
  }

  resume(name: string, nowUs: number): void {
    const group = this.#group(name)
    this.#change(group, nowUs, () => {
      for (const field of ['paused', 'limited', 'slowed', 'crowded'] as const) group.own.delete(field)
    })
    if (['limited', 'full', 'paused'].includes(group.state)) this.#enter(group)
    this.#holdAsSet(group)
  }

  #change(group: Group, nowUs: number, change: () => void): void {
    this.#end(nowUs, [group])
    this.#reshape(group, nowUs)
    change()
    this.#reshape(group, nowUs)
    group.changedUs = nowUs
  }

  /** A group that is paused or held as set is not ready for a moment. */
  #holdAsSet(group: Group): void {
    if (group.state !== 'ready') return
    const [paused, limited] = [group.own.get('paused'), group.own.get('limited')]
    if (paused) this.#hold(group, 'paused', paused.untilUs)
    else if (limited) this.#hold(group, 'limited', limited.untilUs)
  }

  get waiting(): readonly { readonly group: string; readonly id: string }[] {
    return [...this.#groups.values()].flatMap(({ name, jobs }) =>
      jobs.flatMap(({ id, isGone }) => (isGone ? [] : [{ group: name, id }])),
    )
  }

  isGrouped(id: string): boolean {
    return this.#left.get(id)?.group.name !== ''
  }

  get running(): readonly string[] {
    return [...this.#left.keys()]
  }

  #group(name: string): Group {
    const group = this.#groups.get(name) ?? {
      ...{
        name,
        jobs: [],
        running: new Set<string>(),
        state: 'empty' as State,
        tag: 0,
        at: 0,
        held: undefined,
        bucket: undefined,
        seen: [],
        changedUs: 0,
        own: new Map<keyof Settings, Entry>(),
        charges: this.#limits.map(() => []),
      },
    }
    this.#groups.set(name, group)
    return group
  }

  #settings(group: Group): Settings {
    if (group.name === '') return {}
    return { ...this.#defaults, ...Object.fromEntries([...group.own].map(([field, { value }]) => [field, value])) }
  }

  /** What was set for a time ends then, in order: the bucket is never refilled by what no longer applied. */
  #end(nowUs: number, groups: Iterable<Group>): void {
    const over: [number, Group][] = []
    for (const group of groups) {
      const endsUs = [...group.own.values()].map(({ untilUs }) => untilUs).filter((us) => us <= nowUs)
      for (const us of new Set(endsUs.toSorted((a, b) => a - b))) {
        this.#reshape(group, us)
        for (const [field, { untilUs }] of group.own) if (untilUs === us) group.own.delete(field)
        this.#reshape(group, us)
        group.changedUs = us
      }
      if (endsUs.length > 0) over.push([Math.min(...endsUs), group])
    }
    over.sort(([a, one], [b, other]) => a - b || (one.name < other.name ? -1 : 1))
    for (const [, group] of over) if (['limited', 'full'].includes(group.state)) this.#enter(group)
  }

  /** When the first of what was set for groups in a state ends. */
  #firstEnd(...states: State[]): number {
    const groups = [...this.#groups.values()].filter(({ state }) => states.includes(state))
    return Math.min(...groups.flatMap(({ own }) => [...own.values()].map(({ untilUs }) => untilUs)))
  }

  /** By tag or time; names break ties, as in Redis. */
  #in(state: State): Group[] {
    const key = state === 'ready' ? ('tag' as const) : ('at' as const)
    return [...this.#groups.values()]
      .filter((group) => group.state === state)
      .sort((a, b) => a[key] - b[key] || (a.name < b.name ? -1 : 1))
  }

  #insert(group: Group, job: Job, nowUs: number): void {
    group.jobs.push(job)
    group.jobs.sort((a, b) => a.priority - b.priority || a.number - b.number)
    if (group.name === '') return
    // One that was paused or held before it had jobs is not ready for a moment.
    const state = (['paused', 'limited'] as const).find((field) => (group.own.get(field)?.untilUs ?? 0) > nowUs)
    if (group.state === 'empty' && state) this.#hold(group, state, group.own.get(state)?.untilUs as number)
    else if (group.state === 'empty' || (group.state === 'limited' && group.jobs[0] === job)) this.#enter(group)
  }

  /** The next job: the first of a priority, with ageing the one that has waited for longest when counted by priority. */
  #head({ jobs }: Group): Job | undefined {
    const ageingMs = this.#ageingMs
    if (ageingMs === undefined) return jobs[0]
    const firsts = jobs.filter((job, i) => job.priority !== jobs[i - 1]?.priority)
    const key = ({ sinceUs, priority }: Job) => sinceUs + priority * ageingMs * 1000
    return firsts.toSorted((one, other) => key(one) - key(other))[0]
  }

  #shift(group: Group): Job {
    const head = this.#head(group) as Job
    group.jobs.splice(group.jobs.indexOf(head), 1)
    return head
  }

  #enter(group: Group): void {
    if (group.tag <= this.#virtual) {
      this.#lastTag = Math.max(this.#virtual, this.#lastTag) + 1
      group.tag = this.#lastTag
    }
    group.state = 'ready'
  }

  #hold(group: Group, state: State, at: number): undefined {
    group.state = state
    group.at = at
    this.#endBusyPeriod()
  }

  #endBusyPeriod(): void {
    const busy = [...this.#groups.values()].some(({ state }) => state !== 'empty')
    if (busy) return
    this.#virtual = 0
    this.#lastTag = 0
    for (const group of this.#groups.values()) group.tag = 0
  }

  #slotOf(group: Group, nowUs: number, by: number): number | undefined {
    const { concurrency, crowded } = this.#settings(group)
    const head = this.#head(group)
    const paused = group.own.get('paused')
    if (!head) return this.#hold(group, 'empty', 0)
    if (paused) return this.#hold(group, 'paused', paused.untilUs)
    if (isLate(head, nowUs)) return 0
    const most = Math.min(concurrency ?? Number.POSITIVE_INFINITY, crowded ?? Number.POSITIVE_INFINITY)
    if (group.running.size >= most) return this.#hold(group, 'full', nowUs)
    const slotUs = this.#conforming(group, head, nowUs)
    if (slotUs <= by || isLate(head, slotUs)) return slotUs
    group.held = head
    return this.#hold(group, 'limited', slotUs)
  }

  #serve(group: Group, nowUs: number, slotUs: number): Decision {
    const job = this.#shift(group)
    const { weight = 1 } = this.#settings(group)
    this.#virtual = Math.max(this.#virtual, group.tag)
    if (isLate(job, slotUs)) {
      this.#follow(group, nowUs, job.cost, !isLate(job, nowUs))
      return { id: job.id, isLate: true }
    }
    group.tag += Math.max(1, Math.floor((job.cost * UNIT) / weight + 0.5))
    group.running.add(job.id)
    const seen = this.#charge(group, job.cost, nowUs, slotUs)
    const charges = this.#limits.map((limit, i) => {
      const cost = costUnder(limit, job)
      if (cost === 0) return undefined
      const charge = { atUs: slotUs, cost, trueCost: cost }
      group.charges[i]?.push(charge)
      return charge
    })
    const known = { cost: job.cost, tokens: job.tokens }
    this.#left.set(job.id, { job, group, slotUs, attempt: ++this.#departures, charges, seen, known })
    this.#follow(group, nowUs, job.cost, true)
    return { id: job.id, slotUs }
  }

  #charge(group: Group, cost: number, nowUs: number, slotUs: number): { trueCost: number } | undefined {
    const bucket = this.#reshape(group, nowUs)
    if (!bucket) return undefined
    bucket.tat = Math.max(bucket.tat, slotUs) + ceil(cost * bucket.intervalUs)
    bucket.last = slotUs
    const seen = { slotUs, trueCost: cost }
    group.seen.push(seen)
    return seen
  }

  /**
   * A job of the group has left: the next one may be held at once.
   * @param cost of the job that has left
   * @param isKnown whether its slot is known: it is not asked for behind a job that is past its deadline
   */
  #follow(group: Group, nowUs: number, cost: number, isKnown: boolean): void {
    if (group.name === '') return
    const next = this.#head(group)
    if (!next) {
      this.#hold(group, 'empty', 0)
      return
    }
    if (this.#isTrusting && !group.own.has('limited') && this.#byRate(group, cost, nowUs) <= nowUs) return
    const nextUs = isKnown ? this.#conforming(group, next, nowUs) : 0
    if (nextUs > nowUs && !isLate(next, nextUs)) this.#hold(group, 'limited', nextUs)
  }

  /** The bucket under what applies now; undefined without a rate. */
  #reshape(group: Group, nowUs: number): Bucket | undefined {
    const { rate, slowed, burst = 1 } = this.#settings(group)
    const rates = [rate, slowed].filter((one) => one !== undefined && one !== null)
    if (rates.length === 0) return undefined
    const intervalUs = Math.max(...rates.map(intervalOf))
    const { bucket } = group
    if (!bucket) {
      group.bucket = { tat: 0, last: 0, intervalUs, burst }
      group.seen.push({ fromUs: nowUs, intervalUs, burst })
    } else if (bucket.intervalUs !== intervalUs || bucket.burst !== burst) {
      const fromUs = Math.max(nowUs, bucket.last)
      group.bucket = { ...reshaped(bucket, fromUs, intervalUs, burst), last: bucket.last }
      group.seen.push({ fromUs, intervalUs, burst })
    }
    return group.bucket
  }

  /** When its rate, its limits and what was reported let a job go, 0 for now. */
  #conforming(group: Group, job: Job, nowUs: number): number {
    const slots = this.#limits.map((limit, i) => {
      const cost = costUnder(limit, job)
      const slotUs = cost === 0 ? 0 : earliest(limit, group.charges[i] as Charge[], cost)
      return slotUs > nowUs ? slotUs : 0
    })
    const heldUs = group.own.get('limited')?.untilUs ?? 0
    return Math.max(this.#byRate(group, job.cost, nowUs), heldUs, ...slots)
  }

  #byRate(group: Group, cost: number, nowUs: number): number {
    const bucket = this.#reshape(group, nowUs)
    if (!bucket) return 0
    const { tat, last, intervalUs, burst } = bucket
    return Math.ceil(Math.max(nowUs, last, tat + ceil((Math.min(cost, burst) - burst) * intervalUs)))
  }
}

function isLate({ deadlineUs }: Job, slotUs: number): boolean {
  return deadlineUs !== undefined && slotUs > deadlineUs
}
