import type { GroupsView } from './groups.ts'
import { mapCauses } from './held.ts'
import type { FailedMatches, JobRow } from './jobs.ts'
import type { HistoryEntry, Sample } from './queue-status.ts'
import { compareIds } from './stream.ts'
import { addedCounts } from './whole-status.ts'

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

/** Changes of the whole are stored by its head; those of all shards alike are taken from the first one. */
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
  return [...head, ...own.flat()].sort((one, other) => compareIds(other.id, one.id)).slice(0, count)
}

/**
 * The samples of all shards, added up: each counts as its last one until the next. A shard without an earlier sample
 * counts as at its first one, so that its total is no jump.
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

function addedSamples(samples: readonly Sample[]): Omit<Sample, 'at'> {
  const sum = (of: (sample: Sample) => number) => samples.reduce((total, sample) => total + of(sample), 0)
  const ages = samples.flatMap(({ headAgeMs }) => headAgeMs ?? [])
  const rates = samples.flatMap(({ ratePerSecond }) => ratePerSecond ?? [])
  return {
    accepted: sum((sample) => sample.accepted),
    departed: sum((sample) => sample.departed),
    refused: sum((sample) => sample.refused),
    dropped: sum((sample) => sample.dropped),
    depth: sum((sample) => sample.depth),
    waiting: sum((sample) => sample.waiting),
    active: sum((sample) => sample.active),
    headAgeMs: ages.length === 0 ? undefined : Math.max(...ages),
    ratePerSecond: rates.length === 0 ? undefined : rates.reduce((total, rate) => total + rate, 0),
    starts: sum((sample) => sample.starts),
    latenessSumMs: sum((sample) => sample.latenessSumMs),
    latenessMaxMs: Math.max(...samples.map(({ latenessMaxMs }) => latenessMaxMs)),
    completed: sum((sample) => sample.completed),
    failed: sum((sample) => sample.failed),
    failedAttempts: sum((sample) => sample.failedAttempts),
    bypassed: sum((sample) => sample.bypassed),
    heldMs: mapCauses((cause) => sum(({ heldMs }) => heldMs[cause]) / samples.length),
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

/** At most so many rows of each status. */
function firstOfEach<R extends { readonly status: string }>(rows: readonly R[], count: number): R[] {
  const seen = new Map<string, number>()
  return rows.filter(({ status }) => {
    const before = seen.get(status) ?? 0
    seen.set(status, before + 1)
    return before < count
  })
}
