import type { HistoryEntry } from 'sluice/inspect'

/** The possible sources of feedback (docs/feedback.md), and the rest. */
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

/** The possible effects of feedback, and the rest. */
export const FEEDBACK_KINDS = ['pause', 'slow', 'rise', 'quota', 'concurrency', 'resumed', 'other']

/** The source and the effect of a history entry, in words of the two lists. */
export function feedbackLabels({ change }: HistoryEntry): { readonly source: string; readonly kind: string } {
  return { source: wordOf(FEEDBACK_SOURCES, change.source), kind: wordOf(FEEDBACK_KINDS, change.kind) }
}

function wordOf(words: readonly string[], word: unknown): string {
  return words.find((known) => known === word) ?? 'other'
}
