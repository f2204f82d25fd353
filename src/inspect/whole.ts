import { HOLD_CAUSES, mapCauses } from '../departure/departure.ts'
import type { GroupCounts } from '../queue/groups.ts'
import type { ConcurrencyState, RateCause } from '../queue/meter-state.ts'
import { formatRate, unitsPerSecond } from '../rate.ts'
import { addedEnds, byReason } from '../reports/recent-ends.ts'
import { sumsOf } from '../sums.ts'
import type { GroupsView } from './groups.ts'
import { newestFirst } from './history.ts'
import type { FailedMatches, JobRow } from './jobs.ts'
import type { PartAnswer } from './parts.ts'
import { factsOf } from './queue-reading.ts'
import type {
  Bypass,
  HistoryEntry,
  Hold,
  QueueFacts,
  Sample,
  ShardStatus,
  StartTotals,
  WorkerStatus,
} from './queue-status.ts'
import { failingOf, uniqueClients } from './worker-rows.ts'

type StatusAnswer = PartAnswer<QueueFacts | undefined>

/**
 * A queue as one, from the parts that could be read: its head and its shards, or the one part of a queue without
 * shards.
 * @returns undefined if there is no such queue
 */
export function wholeOf(name: string, [head, ...shards]: readonly StatusAnswer[]): QueueFacts | undefined {
  if (!head) return undefined
  if (shards.length === 0) return 'value' in head ? head.value : { ...unknownStatus(name), unread: ['queue'] }
  const unread = shards.flatMap((shard, i) => ('error' in shard ? [i] : []))
  const each = shards.map((shard) => ('value' in shard ? shard.value : undefined))
  if ('value' in head) return head.value && wholeStatus(head.value, each, unread)
  const basis = each.find((shard) => shard !== undefined)
  return wholeStatus(basis ? headless(basis, each) : unknownStatus(name), each, ['head', ...unread])
}

/** Replaces a head that could not be read, from the shards. */
function headless(basis: QueueFacts, shards: readonly (QueueFacts | undefined)[]): QueueFacts {
  const known = shards.filter((shard) => shard !== undefined)
  const capacity = sumOfKnown(known.map((shard) => shard.capacity))
  return { ...basis, shape: undefined, rate: addedRate(known), capacity, concurrency: undefined }
}

/** A queue without any readable part: all counts are 0, and the time is this machine's. */
function unknownStatus(name: string): QueueFacts {
  return factsOf(name, {
    ...{ exists: true, at: String(Date.now() * 1000), paused: false, meter: {}, starts: {}, workers: {} },
    ...{ depth: 0, waiting: 0, delayed: 0, waitingChildren: 0, active: 0, prioritized: 0, completed: 0, failed: 0 },
    heldUs: mapCauses(() => '0'),
  }) as QueueFacts
}

/**
 * A sharded queue as one: the shape of its head, which has no jobs, and the sums of its shards.
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
    ...sumsOf(SUMMED, known),
    ...{ cause: causeOf(head, known), rate: rateOf(head, known) },
    concurrency: concurrencyOf(head, known),
    feedback: known.find(({ cause }) => cause === 'feedback')?.feedback ?? known.find((one) => one.feedback)?.feedback,
    headAgeMs: greatest(known.map((shard) => shard.headAgeMs)),
    oldestAgeMs: greatest(known.map((shard) => shard.oldestAgeMs)),
    nextDueAt: known.some(({ waiting }) => waiting > 0) ? undefined : earliest(known.map((shard) => shard.nextDueAt)),
    nextDepartureAt: earliest(known.map((shard) => shard.nextDepartureAt)),
    meanCost: departed === 0 ? 1 : sum((shard) => shard.meanCost * shard.departedTotal) / departed,
    groups: groupsOf(known),
    grouped: sumOfKnown(known.map((shard) => shard.grouped)),
    ...{ hold: longestHold(known), bypass: bypassOf(known) },
    heldMs: meanHeld(known, shards.length - unread.filter((part) => part !== 'head').length),
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

/** Fields that are sums over the shards. */
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

/** Clocks of all shards, divided by their number: a second is a second. */
function meanHeld(known: readonly Pick<QueueFacts, 'heldMs'>[], answered: number): QueueFacts['heldMs'] {
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

/** A pause of the whole queue holds all shards. */
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
  const perSecond = sumOfKnown(shards.map(({ rate }) => (rate === undefined ? undefined : unitsPerSecond(rate))))
  return perSecond === undefined ? undefined : formatRate({ limit: Number(perSecond.toPrecision(6)), periodMs: 1000 })
}

/** Feedback may keep a shard below its part. */
function concurrencyOf(head: QueueFacts, shards: readonly QueueFacts[]): ConcurrencyState | undefined {
  const fed = shards.find(({ concurrency }) => concurrency?.cause === 'feedback')?.concurrency
  if (!head.concurrency || !fed) return head.concurrency
  const inForce = shards.reduce((total, { concurrency }) => total + (concurrency?.inForce ?? 0), 0)
  return { ...head.concurrency, inForce, cause: 'feedback', until: fed.until }
}

function groupsOf(shards: readonly QueueFacts[]): GroupCounts | undefined {
  const counts = shards.flatMap(({ groups }) => groups ?? [])
  return counts.length === 0 ? undefined : addedCounts(counts)
}

export function addedCounts(counts: readonly GroupCounts[]): GroupCounts {
  return sumsOf(['waiting', 'limited', 'maxed', 'paused'], counts)
}

/** The last finding; starts past the meters of all shards add up. */
function bypassOf(shards: readonly QueueFacts[]): Bypass | undefined {
  const found = shards.flatMap(({ bypass }) => bypass ?? [])
  const last = found.sort((one, other) => other.at.getTime() - one.at.getTime())[0]
  if (!last) return undefined
  return {
    ...last,
    perSecond: sumOfKnown(found.map(({ perSecond }) => perSecond)),
    clients: uniqueClients(found.flatMap(({ clients }) => clients)),
  }
}

/** The hold of the shard whose head has waited longest. */
function longestHold(shards: readonly QueueFacts[]): Hold | undefined {
  const holds = shards.flatMap(({ hold }) => hold ?? [])
  return holds.sort((one, other) => one.since.getTime() - other.since.getTime())[0]
}

function startsOf(shards: readonly QueueFacts[]): StartTotals {
  const totals = shards.map(({ starts }) => starts)
  const histogram = (field: 'lateness' | 'wait') =>
    (totals[0]?.[field] ?? []).map(([le], i) => {
      return [le, totals.reduce((sum, starts) => sum + (starts[field][i]?.[1] ?? 0), 0)] as const
    })
  return {
    ...sumsOf(['count', 'early', 'latenessSumMs', 'waits', 'waitSumMs'], totals),
    lateness: histogram('lateness'),
    waitedMs: sumsOf(
      HOLD_CAUSES,
      totals.map(({ waitedMs }) => waitedMs),
    ),
    wait: histogram('wait'),
  }
}

/** A sharded worker is a worker in each shard: workers of one process and name are shown as one. */
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
    ...sumsOf(['concurrency', 'running', 'held', 'started', 'ratePerSecond'], [one, other]),
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

/** undefined if none is known. */
function sumOfKnown(numbers: readonly (number | undefined)[]): number | undefined {
  const known = numbers.filter((number) => number !== undefined)
  return known.length === 0 ? undefined : known.reduce((sum, number) => sum + number, 0)
}

function earliest(dates: readonly (Date | undefined)[]): Date | undefined {
  const known = dates.filter((date) => date !== undefined)
  return known.length === 0 ? undefined : new Date(Math.min(...known.map((date) => date.getTime())))
}

function latest(dates: readonly (Date | undefined)[]): Date | undefined {
  const ms = greatest(dates.map((date) => date?.getTime()))
  return ms === undefined ? undefined : new Date(ms)
}

/** Jobs of all shards, in turns: each shard keeps its order, and no shard comes before the others. */
export function inTurns<T>(lists: readonly (readonly T[])[], { start = 0, count = 50 }): T[] {
  const longest = Math.max(0, ...lists.map(({ length }) => length))
  const all = Array.from({ length: longest }, (_, i) => lists.flatMap((list) => list[i] ?? []))
  return all.flat().slice(start, start + count)
}

export function allMatches(found: readonly FailedMatches[], page: { start?: number; count?: number }): FailedMatches {
  const jobs = found.flatMap((one) => one.jobs)
  const endedMs = ({ finishedAt }: JobRow) => finishedAt?.getTime() ?? 0
  const { start = 0, count = 50 } = page
  return {
    jobs: jobs.sort((one, other) => endedMs(other) - endedMs(one)).slice(start, start + count),
    found: found.reduce((sum, one) => sum + one.found, 0),
    isFoundAtLeast: found.some((one) => one.isFoundAtLeast),
  }
}

/** Changes of the whole queue are stored by its head; changes that all shards share are taken from the first one. */
const OF_HEAD: readonly HistoryEntry['kind'][] = ['declared', 'override', 'cleared']
const OF_FIRST: readonly HistoryEntry['kind'][] = ['pause', 'resume']

export function wholeHistory(
  head: readonly HistoryEntry[],
  shards: readonly (readonly HistoryEntry[])[],
  count = 100,
): HistoryEntry[] {
  const own = shards.map((entries, shard) =>
    entries.filter(({ kind }) => !OF_HEAD.includes(kind) && (shard === 0 || !OF_FIRST.includes(kind))),
  )
  return newestFirst([...head, ...own.flat()]).slice(0, count)
}

/**
 * The samples of all shards, added up: each counts as its last one until the next. A shard without an earlier sample
 * counts as at its first one, so that its total does not jump.
 * @param everyMs the time between two samples
 */
export function wholeSeries(lists: readonly (readonly Sample[])[], everyMs: number): Sample[] {
  const began = lists.filter(({ length }) => length > 0)
  const latest = began.map(([first]) => first as Sample)
  const news = began
    .flatMap((samples, shard) => samples.map((sample) => ({ sample, shard })))
    .sort((one, other) => one.sample.at.getTime() - other.sample.at.getTime())
  const merged: Sample[] = []
  for (const [i, { sample, shard }] of news.entries()) {
    latest[shard] = sample
    const window = Math.floor(sample.at.getTime() / everyMs)
    const next = news[i + 1]
    if (next && Math.floor(next.sample.at.getTime() / everyMs) === window) continue
    merged.push({ ...addedSamples(latest), at: sample.at })
  }
  return merged
}

const COUNTED = [
  ...(['accepted', 'departed', 'refused', 'dropped', 'depth', 'waiting', 'active'] as const),
  ...(['starts', 'latenessSumMs', 'completed', 'failed', 'failedAttempts', 'bypassed'] as const),
]

function addedSamples(samples: readonly Sample[]): Omit<Sample, 'at'> {
  return {
    ...sumsOf(COUNTED, samples),
    headAgeMs: greatest(samples.map(({ headAgeMs }) => headAgeMs)),
    ratePerSecond: sumOfKnown(samples.map(({ ratePerSecond }) => ratePerSecond)),
    latenessMaxMs: Math.max(...samples.map(({ latenessMaxMs }) => latenessMaxMs)),
    heldMs: meanHeld(samples, samples.length),
    paused: samples.every(({ paused }) => paused),
  }
}

/** A group is in one shard. */
export function wholeGroups(views: readonly GroupsView[], count: number): GroupsView | undefined {
  const [first] = views
  if (!first) return undefined
  const waiting = views.reduce((sum, view) => sum + view.waiting, 0)
  const rows = (field: 'oldest' | 'largest' | 'held') =>
    views.flatMap((view) => view[field]).map((row) => ({ ...row, share: waiting === 0 ? 0 : row.waiting / waiting }))
  return {
    at: first.at,
    counts: addedCounts(views.map(({ counts }) => counts)),
    waiting,
    oldest: rows('oldest')
      .sort((one, other) => (other.headAgeMs ?? 0) - (one.headAgeMs ?? 0))
      .slice(0, count),
    largest: rows('largest')
      .sort((one, other) => other.waiting - one.waiting)
      .slice(0, count),
    held: firstOfEach(rows('held'), count),
  }
}

/** At most `count` rows of each status. */
function firstOfEach<R extends { readonly status: string }>(rows: readonly R[], count: number): R[] {
  const seen = new Map<string, number>()
  return rows.filter(({ status }) => {
    const before = seen.get(status) ?? 0
    seen.set(status, before + 1)
    return before < count
  })
}
