import type { HistoryEntry } from '../inspect/queue-status.ts'
import type { QueueLimit } from '../limits/queue-limits.ts'

/** The kinds of entries that change the rate, the burst or the limits. */
const RESHAPING: readonly HistoryEntry['kind'][] = ['declared', 'override', 'cleared', 'feedback', 'restored', 'group']

/** When the shape of a queue may have changed, µs, ascending. The end of an override has no entry of its own. */
export function changesUs(history: readonly HistoryEntry[]): number[] {
  const changes = history.filter(({ kind }) => RESHAPING.includes(kind))
  const times = changes.flatMap(({ at, until }) => (until ? [at, until] : [at]))
  return times.map((time) => time.getTime() * 1000).sort((one, other) => one - other)
}

/** Whether it only keeps a member from departing, at whatever rate. */
function isHold({ limit: _, keys: __, ...fields }: HistoryEntry['change'] & object): boolean {
  return Object.keys(fields).every((field) => field === 'held')
}

/** The values with settings (`setLimit`), by the name of the limit, as departures have them. */
export function changedValues(
  history: readonly HistoryEntry[],
  limits: readonly QueueLimit[],
): ReadonlyMap<string, ReadonlySet<string>> {
  const changed = new Map<string, Set<string>>()
  for (const { kind, change } of history) {
    const { limit: name, keys } = change as {
      readonly limit?: string
      readonly keys?: Readonly<Record<string, string>>
    }
    const limit = kind === 'limit' ? limits.find((one) => one.name === name) : undefined
    if (!limit || !keys || isHold(change)) continue
    const values = [limit.pool ? 'member' : (limit.by ?? [])].flat().map((key) => keys[key] ?? '')
    const value = values.length === 1 ? values[0] : values.map((one) => `${Buffer.byteLength(one)}:${one}`).join('')
    changed.set(limit.name, (changed.get(limit.name) ?? new Set()).add(value as string))
  }
  return changed
}
