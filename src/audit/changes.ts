import type { HistoryEntry } from '../inspect/queue-status.ts'

/** The kinds of entries that change the rate, the burst or the limits. */
const RESHAPING: readonly HistoryEntry['kind'][] = ['declared', 'override', 'cleared', 'feedback', 'restored', 'group']

/** When the shape of a queue may have changed, µs, ascending. The end of an override has no entry of its own. */
export function changesUs(history: readonly HistoryEntry[]): number[] {
  const changes = history.filter(({ kind }) => RESHAPING.includes(kind))
  const times = changes.flatMap(({ at, until }) => (until ? [at, until] : [at]))
  return times.map((time) => time.getTime() * 1000).sort((one, other) => one - other)
}
