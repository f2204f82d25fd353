import { sumsOf } from '../sums.ts'

/** How far back the recent ends of jobs reach, ms. */
export const RECENT_MS = 300_000
/** The ends are counted in parts of this length, ms, and expire part by part. */
const PART_MS = 30_000
/** Reasons counted separately in each part; further ones are not. */
const MAX_REASONS = 20
/** Number of reasons in a report. */
const REPORTED_REASONS = 3
const MAX_REASON_LENGTH = 160

/** Jobs and attempts that ended. */
export interface EndCounts {
  /** Jobs that completed. */
  readonly completed: number
  /** Jobs that failed finally. */
  readonly failed: number
  /** Attempts that failed, whether the job is retried or not. */
  readonly failedAttempts: number
}

/** Why attempts failed: the text of one of them, and how many failed for the same reason. */
export type ReasonCount = readonly [reason: string, count: number]

interface Part extends Record<keyof EndCounts, number> {
  readonly fromMs: number
  readonly reasons: Map<string, { text: string; count: number }>
}

/** Ends in a worker in the last minutes, for its report. */
export class RecentEnds {
  readonly #now: () => number
  #parts: Part[] = []

  /** @param now a monotonic clock, ms */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  completed(): void {
    this.#part().completed += 1
  }

  /** @param isFinal whether the job is not retried */
  failed(reason: string, isFinal: boolean): void {
    const part = this.#part()
    part.failedAttempts += 1
    if (isFinal) part.failed += 1
    const kind = kindOfReason(reason)
    const known = part.reasons.get(kind)
    if (known) known.count += 1
    else if (part.reasons.size < MAX_REASONS) part.reasons.set(kind, { text: shortReason(reason), count: 1 })
  }

  /** The report; undefined if nothing ended. */
  report(): { readonly ends: EndCounts; readonly reasons: readonly ReasonCount[] } | undefined {
    const parts = this.#recent()
    if (parts.length === 0) return undefined
    const ends = addedEnds(parts)
    const reasons = parts.flatMap((part) => [...part.reasons.values()].map(({ text, count }) => [text, count] as const))
    return { ends, reasons: byReason(reasons).slice(0, REPORTED_REASONS) }
  }

  #recent(): Part[] {
    const sinceMs = this.#now() - RECENT_MS
    this.#parts = this.#parts.filter(({ fromMs }) => fromMs > sinceMs)
    return this.#parts
  }

  #part(): Part {
    const nowMs = this.#now()
    const last = this.#parts.at(-1)
    if (last && nowMs - last.fromMs < PART_MS) return last
    const part: Part = { fromMs: nowMs, completed: 0, failed: 0, failedAttempts: 0, reasons: new Map() }
    this.#recent().push(part)
    return part
  }
}

export function addedEnds(counts: readonly EndCounts[]): EndCounts {
  return sumsOf(['completed', 'failed', 'failedAttempts'], counts)
}

/** Adds up the counts of the same reasons: the most frequent first. */
export function byReason(counts: readonly ReasonCount[]): ReasonCount[] {
  const kinds = new Map<string, { text: string; count: number }>()
  for (const [text, count] of counts) {
    const kind = kindOfReason(text)
    const known = kinds.get(kind)
    if (known) known.count += count
    else kinds.set(kind, { text, count })
  }
  return [...kinds.values()].sort((one, other) => other.count - one.count).map(({ text, count }) => [text, count])
}

/** The common part of reasons that differ only in numbers and ids. The codes of HTTP and SMTP tell them apart. */
function kindOfReason(reason: string): string {
  const isOwn = (word: string) => !/\d/.test(word) || /^[45]\d\d$/.test(word)
  return shortReason(reason).replaceAll(/\w+/g, (word) => (isOwn(word) ? word : '#'))
}

/** The longest common part of reasons of a kind; the whole reason if there is none. */
export function commonPart(reason: string): string {
  const parts = kindOfReason(reason)
    .split(/[#…]/)
    .map((part) => part.trim())
  const longest = parts.reduce((one, other) => (other.length > one.length ? other : one), '')
  return longest || reason
}

/** The first line of a reason. */
export function shortReason(reason: string): string {
  const [line = ''] = reason.trim().split('\n', 1)
  return line.length > MAX_REASON_LENGTH ? `${line.slice(0, MAX_REASON_LENGTH - 1)}…` : line
}
