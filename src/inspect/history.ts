import type { Batch, Deferred } from './batch.ts'
import type { HistoryEntry } from './queue-status.ts'
import { compareIds, parsedObject, type StreamEntry, type StreamReply, streamEntries } from './stream.ts'

const KINDS: Readonly<Record<HistoryEntry['kind'], true>> = {
  ...{ declared: true, override: true, cleared: true, pause: true, resume: true },
  ...{ feedback: true, restored: true, redrive: true, group: true, limit: true, job: true },
}

export interface HistoryOptions {
  /** Maximum number of entries. Default 100. */
  readonly count?: number
  /** Only entries after the one with this id. */
  readonly after?: string
}

/** Asks for changes by operators, and for feedback of the downstream, which has its own stream: both, newest first. */
export function askForHistory(
  base: string,
  batch: Batch,
  { count = 100, after }: HistoryOptions = {},
): Deferred<HistoryEntry[]> {
  const range = ['+', after === undefined ? '-' : `(${after}`, 'COUNT', count] as const
  const changes = batch.add<StreamReply>('xrevrange', `${base}meta:history`, ...range)
  const feedback = batch.add<StreamReply>('xrevrange', `${base}meta:feedback`, ...range)
  return () =>
    newestFirst([
      ...streamEntries(changes()).flatMap((entry) => changeEntry(entry) ?? []),
      ...streamEntries(feedback()).map(feedbackEntry),
    ]).slice(0, count)
}

export function newestFirst(entries: readonly HistoryEntry[]): HistoryEntry[] {
  return entries.toSorted((one, other) => compareIds(other.id, one.id))
}

/** Kinds that only a later version knows are left out. */
function changeEntry({ id, atMs, fields }: StreamEntry): HistoryEntry | undefined {
  const { kind = '', by = '', reason = '', change, until } = fields
  if (!Object.hasOwn(KINDS, kind)) return undefined
  return {
    id,
    at: new Date(atMs),
    kind: kind as HistoryEntry['kind'],
    by,
    reason,
    change: parsedObject(change),
    ...(until ? { until: new Date(Number(until)) } : {}),
  }
}

function feedbackEntry({ id, atMs, fields }: StreamEntry): HistoryEntry {
  const { by = '', reason = '', until, at: _, ...change } = parsedObject(fields.change)
  return {
    id,
    at: new Date(atMs),
    kind: 'feedback',
    by: String(by),
    reason: String(reason),
    change,
    ...(typeof until === 'number' ? { until: new Date(until) } : {}),
  }
}
