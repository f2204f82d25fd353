import type { GroupCounts } from '../queue/groups.ts'
import { type ConcurrencyState, meterStateOf, type RateCause } from '../queue/meter-state.ts'
import { formatRate, unitsPerSecond } from '../rate.ts'
import { addedEnds, byReason } from '../reports/recent-ends.ts'
import { uniqueClients } from './bypass.ts'
import { failingOf } from './failing.ts'
import { mapCauses } from './held.ts'
import type { PartAnswer } from './parts.ts'
import type { Bypass, Hold, QueueFacts, ShardStatus, StartTotals, WorkerStatus } from './queue-status.ts'

type StatusAnswer = PartAnswer<QueueFacts | undefined>

/**
 * A sharded queue as one, of the parts that could be read.
 * @returns undefined where there is no such queue
 */
export function wholeOf(
  name: string,
  head: StatusAnswer | undefined,
  shards: readonly StatusAnswer[],
): QueueFacts | undefined {
  if (!head) return undefined
  const unread = shards.flatMap((shard, i) => ('error' in shard ? [i] : []))
  const each = shards.map((shard) => ('value' in shard ? shard.value : undefined))
  if ('value' in head) return head.value && wholeStatus(head.value, each, unread)
  const basis = each.find((shard) => shard !== undefined)
  return wholeStatus(basis ? headless(basis, each) : unknownStatus(name), each, ['head', ...unread])
}

/** Replaces a head that could not be read: what the shards have of the whole. */
function headless(basis: QueueFacts, shards: readonly (QueueFacts | undefined)[]): QueueFacts {
  const known = shards.filter((shard) => shard !== undefined)
  const capacities = known.flatMap(({ capacity }) => capacity ?? [])
  return {
    ...basis,
    shape: undefined,
    rate: addedRate(known),
    capacity: capacities.length === 0 ? undefined : capacities.reduce((sum, places) => sum + places, 0),
    concurrency: undefined,
  }
}

/** A queue that is not sharded and could not be read. */
export function unreadStatus(name: string): QueueFacts {
  return { ...unknownStatus(name), unread: ['queue'] }
}

/** A queue of which nothing could be read: all counts are 0, and the time is this machine's. */
function unknownStatus(name: string): QueueFacts {
  const state = meterStateOf({
    nowUs: Date.now() * 1000,
    ...{ depth: 0, waiting: 0, delayed: 0, waitingChildren: 0, active: 0, level: 0 },
    ...{ shape: undefined, groups: undefined, globalConcurrency: undefined, nextSlotUs: undefined },
    ...{ paused: false, counter: () => undefined, head: [] },
  })
  return {
    ...state,
    name,
    ...sumsOf([]),
    ...{ oldestAgeMs: undefined, nextDueAt: undefined, hold: undefined, grouped: undefined },
    ...{ failing: undefined, bypass: undefined, samplesDeletedAt: undefined },
    ...{ lastRefusedAt: undefined, largestGroup: undefined },
    ...{ heldMs: mapCauses(() => 0), starts: startsOf([]), workers: [], deadLetterQueues: [] },
  }
}

/**
 * A sharded queue as one: the shape is that of its head, which has no jobs, and what its shards hold is added up.
 * @param shards in order; undefined for one that has no keys yet
 * @param unread the parts that could not be read
 */
export function wholeStatus(
  head: QueueFacts,
  shards: readonly (QueueFacts | undefined)[],
  unread: readonly (number | 'head')[] = [],
): QueueFacts {
  const known = shards.filter((shard) => shard !== undefined)
  const sum = (of: (shard: QueueFacts) => number) => known.reduce((total, shard) => total + of(shard), 0)
  const workers = workersOf(known)
  const departed = sum((shard) => shard.departedTotal)
  return {
    ...head,
    ...pausesOf(known),
    ...sumsOf(known),
    ...{ cause: causeOf(head, known), rate: rateOf(head, known) },
    concurrency: concurrencyOf(head, known),
    feedback: known.find(({ cause }) => cause === 'feedback')?.feedback ?? known.find((one) => one.feedback)?.feedback,
    headAgeMs: greatest(known.map((shard) => shard.headAgeMs)),
    oldestAgeMs: greatest(known.map((shard) => shard.oldestAgeMs)),
    nextDueAt: known.some(({ waiting }) => waiting > 0) ? undefined : earliest(known.map((shard) => shard.nextDueAt)),
    nextDepartureAt: earliest(known.map((shard) => shard.nextDepartureAt)),
    meanCost: departed === 0 ? 1 : sum((shard) => shard.meanCost * shard.departedTotal) / departed,
    ...{ groups: groupsOf(known), grouped: groupedOf(known) },
    ...{ hold: longestHold(known), bypass: bypassOf(known) },
    heldMs: heldOf(known, shards.length - unread.filter((part) => part !== 'head').length),
    starts: startsOf(known),
    ...{ workers, failing: failingOf(workers) },
    lastRefusedAt: latest(known.map((shard) => shard.lastRefusedAt)),
    // Each group is in one shard.
    largestGroup: known
      .flatMap((shard) => shard.largestGroup ?? [])
      .sort((one, other) => other.waiting - one.waiting)[0],
    samplesDeletedAt: latest(known.map((shard) => shard.samplesDeletedAt)),
    // Each shard has queues of dead letters of its own, below its prefix.
    deadLetterQueues: [],
    shards: known.map((shard) => shardStatus(shard, shards.indexOf(shard))),
    ...(unread.length === 0 ? {} : { unread }),
  }
}

/** What a whole has as many of as its shards together. */
const SUMMED = [
  'depth',
  'waiting',
  'delayed',
  'waitingChildren',
  'active',
  'level',
  'prioritized',
  'acceptedTotal',
  'departedTotal',
  'refusedTotal',
  'refusedLateTotal',
  'shadowRefusedTotal',
  'shadowDelayedTotal',
  'droppedTotal',
  'unconfirmedTotal',
  'refundedTotal',
  'forfeitedTotal',
  'completedTotal',
  'failedTotal',
  'failedAttemptsTotal',
  'bypassedTotal',
  'completedKept',
  'failedKept',
] as const

function sumsOf(shards: readonly QueueFacts[]): Pick<QueueFacts, (typeof SUMMED)[number]> {
  const sums = SUMMED.map((field) => [field, shards.reduce((total, shard) => total + shard[field], 0)])
  return Object.fromEntries(sums)
}

/** Over all shards a second is a second. */
function heldOf(known: readonly QueueFacts[], answered: number): QueueFacts['heldMs'] {
  return mapCauses((cause) => known.reduce((sum, { heldMs }) => sum + heldMs[cause], 0) / Math.max(1, answered))
}

function shardStatus(status: QueueFacts, shard: number): ShardStatus {
  const { rate, capacity, concurrency, depth, waiting, delayed, active, hold, paused, pausedUntil, cause } = status
  return {
    ...{ shard, rate, capacity, depth, waiting, delayed, active, hold, cause },
    concurrency: concurrency?.inForce,
    paused: paused || pausedUntil !== undefined,
  }
}

/** A pause is one of the whole where it holds all shards. */
function pausesOf(shards: readonly QueueFacts[]) {
  const [first] = shards
  const isPaused = shards.length > 0 && shards.every(({ paused }) => paused)
  const until = shards.every(({ pausedUntil }) => pausedUntil)
    ? earliest(shards.map((one) => one.pausedUntil))
    : undefined
  return { paused: isPaused, pausedUntil: until, pauseReason: until && first?.pauseReason }
}

function causeOf(head: QueueFacts, shards: readonly QueueFacts[]): RateCause {
  const pauses: readonly RateCause[] = ['paused', 'meter paused']
  const [first] = shards
  if (first && pauses.includes(first.cause) && shards.every(({ cause }) => cause === first.cause)) return first.cause
  return shards.some(({ cause }) => cause === 'feedback') ? 'feedback' : head.cause
}

/** Feedback may keep a shard below its part: then the parts are added up. */
function rateOf(head: QueueFacts, shards: readonly QueueFacts[]): string | undefined {
  const isFed = shards.some(({ cause }) => cause === 'feedback')
  if (head.rate === undefined || !isFed) return head.rate
  return addedRate(shards)
}

function addedRate(shards: readonly QueueFacts[]): string | undefined {
  const rates = shards.flatMap(({ rate }) => rate ?? [])
  if (rates.length === 0) return undefined
  const perSecond = rates.reduce((sum, rate) => sum + unitsPerSecond(rate), 0)
  return formatRate({ limit: Number(perSecond.toPrecision(6)), periodMs: 1000 })
}

/** Feedback may keep a shard below its part. */
function concurrencyOf(head: QueueFacts, shards: readonly QueueFacts[]): ConcurrencyState | undefined {
  const fed = shards.find(({ concurrency }) => concurrency?.cause === 'feedback')?.concurrency
  if (!head.concurrency || !fed) return head.concurrency
  const inForce = shards.reduce((total, { concurrency }) => total + (concurrency?.inForce ?? 0), 0)
  return { ...head.concurrency, inForce, cause: 'feedback', until: fed.until }
}

function groupedOf(shards: readonly QueueFacts[]): number | undefined {
  const counts = shards.flatMap(({ grouped }) => grouped ?? [])
  return counts.length === 0 ? undefined : counts.reduce((sum, count) => sum + count, 0)
}

function groupsOf(shards: readonly QueueFacts[]): GroupCounts | undefined {
  const counts = shards.flatMap(({ groups }) => groups ?? [])
  return counts.length === 0 ? undefined : addedCounts(counts)
}

export function addedCounts(counts: readonly GroupCounts[]): GroupCounts {
  const sum = (field: keyof GroupCounts) => counts.reduce((total, one) => total + one[field], 0)
  return { waiting: sum('waiting'), limited: sum('limited'), maxed: sum('maxed'), paused: sum('paused') }
}

/** The last one that was found; what starts past the meters of all shards adds up. */
function bypassOf(shards: readonly QueueFacts[]): Bypass | undefined {
  const found = shards.flatMap(({ bypass }) => bypass ?? [])
  const last = found.sort((one, other) => other.at.getTime() - one.at.getTime())[0]
  const rates = found.flatMap(({ perSecond }) => perSecond ?? [])
  if (!last) return undefined
  return {
    ...last,
    perSecond: rates.length === 0 ? undefined : rates.reduce((sum, rate) => sum + rate, 0),
    clients: uniqueClients(found.flatMap(({ clients }) => clients)),
  }
}

/** Of the shards whose heads wait, that whose head has waited longest. */
function longestHold(shards: readonly QueueFacts[]): Hold | undefined {
  const holds = shards.flatMap(({ hold }) => hold ?? [])
  return holds.sort((one, other) => one.since.getTime() - other.since.getTime())[0]
}

function startsOf(shards: readonly QueueFacts[]): StartTotals {
  const totals = shards.map(({ starts }) => starts)
  const sum = (of: (starts: StartTotals) => number) => totals.reduce((total, one) => total + of(one), 0)
  const histogram = (field: 'lateness' | 'wait') =>
    (totals[0]?.[field] ?? []).map(([le], i) => [le, sum((starts) => starts[field][i]?.[1] ?? 0)] as const)
  return {
    count: sum(({ count }) => count),
    early: sum(({ early }) => early),
    latenessSumMs: sum(({ latenessSumMs }) => latenessSumMs),
    lateness: histogram('lateness'),
    waits: sum(({ waits }) => waits),
    waitSumMs: sum(({ waitSumMs }) => waitSumMs),
    waitedMs: mapCauses((cause) => sum(({ waitedMs }) => waitedMs[cause])),
    wait: histogram('wait'),
  }
}

/** A sharded worker is a worker in each shard: those of one process and name are shown as one. */
function workersOf(shards: readonly QueueFacts[]): WorkerStatus[] {
  const merged = new Map<string, WorkerStatus>()
  for (const worker of shards.flatMap(({ workers }) => workers)) {
    const key = JSON.stringify([worker.host, worker.pid, worker.name])
    const known = merged.get(key)
    merged.set(key, known ? addedWorkers(known, worker) : worker)
  }
  return [...merged.values()]
}

const WORKER_STATES: readonly WorkerStatus['state'][] = ['running', 'paused', 'overloaded']

function addedWorkers(one: WorkerStatus, other: WorkerStatus): WorkerStatus {
  const rank = Math.max(...[one, other].map(({ state }) => WORKER_STATES.indexOf(state)))
  return {
    ...one,
    seenAt: one.seenAt > other.seenAt ? one.seenAt : other.seenAt,
    concurrency: one.concurrency + other.concurrency,
    running: one.running + other.running,
    held: one.held + other.held,
    started: one.started + other.started,
    ratePerSecond: one.ratePerSecond + other.ratePerSecond,
    latenessMaxMs: Math.max(one.latenessMaxMs, other.latenessMaxMs),
    roundTripMs: Math.max(one.roundTripMs, other.roundTripMs),
    clockErrorMs: greatest([one.clockErrorMs, other.clockErrorMs]),
    loopUtilisation: Math.max(one.loopUtilisation, other.loopUtilisation),
    state: WORKER_STATES[rank] ?? one.state,
    recentEnds: addedEnds([one.recentEnds, other.recentEnds]),
    failureReasons: byReason([...one.failureReasons, ...other.failureReasons]),
    bypassedBy: uniqueClients([...one.bypassedBy, ...other.bypassedBy]),
  }
}

function greatest(numbers: readonly (number | undefined)[]): number | undefined {
  const known = numbers.filter((number) => number !== undefined)
  return known.length === 0 ? undefined : Math.max(...known)
}

function earliest(dates: readonly (Date | undefined)[]): Date | undefined {
  const known = dates.filter((date) => date !== undefined)
  return known.length === 0 ? undefined : new Date(Math.min(...known.map((date) => date.getTime())))
}

function latest(dates: readonly (Date | undefined)[]): Date | undefined {
  const ms = greatest(dates.map((date) => date?.getTime()))
  return ms === undefined ? undefined : new Date(ms)
}
