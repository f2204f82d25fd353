import type { HistoryEntry } from '../inspect/queue-status.ts'

/** Who may have said so (docs/feedback.md), and the rest. */
export const FEEDBACK_SOURCES = [
  ...[
    'retry-after',
    'ratelimit',
    'x-ratelimit',
    'body',
    'status',
    'smtp',
    'sqlstate',
    'error',
    'latency',
    'rule',
    'user',
  ],
  'other',
]

/** What it may have changed, and the rest. */
export const FEEDBACK_KINDS = ['pause', 'slow', 'rise', 'quota', 'concurrency', 'resumed', 'other']

/** By whom and how an entry of the history changed the queue, in words of the two lists. */
export function feedbackLabels({ change }: HistoryEntry): { readonly source: string; readonly kind: string } {
  return { source: wordOf(FEEDBACK_SOURCES, change.source), kind: wordOf(FEEDBACK_KINDS, change.kind) }
}

function wordOf(words: readonly string[], word: unknown): string {
  return words.find((known) => known === word) ?? 'other'
}
