import type { Source } from '../../feedback/feedback.ts'
import type { HttpAnswer } from '../answer.ts'
import { field, parseCount } from './field.ts'
import { peerNowMs } from './instant.ts'
import { parseReset } from './reset.ts'

/** What a quota counts. `other`: a unit that nothing here can count. */
export type QuotaUnit = 'requests' | 'tokens' | 'content-bytes' | 'concurrent-requests' | 'other'

/** What an answer reports about one quota. Counts are whole, 0 or more. */
export interface QuotaSignal {
  /** The policy's name, if quotas have names. */
  readonly name?: string
  /** Units per window. */
  readonly limit?: number
  readonly remaining?: number
  /** ms until there is more. */
  readonly resetMs?: number
  readonly windowMs?: number
  readonly unit: QuotaUnit
  /** `pk` of the RateLimit fields, in base64. */
  readonly partition?: string
  readonly source: Source
}

/** The fields, in lower case, that describe one quota; the first readable reset counts. */
export interface QuotaFields {
  /** The name of the quota, if a vendor has several. */
  readonly name?: string
  /** Default `requests`. */
  readonly unit?: QuotaUnit
  readonly limit?: string
  readonly remaining?: string
  readonly resets: readonly string[]
}

/** A quota from its own fields; undefined if none of them has a value. */
export function readQuotaFields(answer: HttpAnswer, fields: QuotaFields): QuotaSignal | undefined {
  const textOf = (name: string | undefined) => (name === undefined ? undefined : field(answer, name))
  const remainingText = textOf(fields.remaining)
  const remaining = parseCount(remainingText)
  const resetMs = firstReset(answer, fields.resets)
  // Azure sends remaining -1 and reset 0 for unknown values: such a 0 is not a time.
  const isUnknown = resetMs === 0 && remainingText !== undefined && remaining === undefined
  const figures = { limit: parseCount(textOf(fields.limit)), remaining, resetMs: isUnknown ? undefined : resetMs }
  return quotaSignal(figures, fields.unit ?? 'requests', 'x-ratelimit', fields.name)
}

/** Leaves out unknown figures; undefined if all are unknown. */
export function quotaSignal(
  figures: Figures,
  unit: QuotaUnit,
  source: Source,
  name?: string,
  partition?: string,
): QuotaSignal | undefined {
  const known = Object.entries({ ...figures, name, partition }).filter(([, value]) => value !== undefined)
  if (Object.values(figures).every((figure) => figure === undefined)) return undefined
  return { ...(Object.fromEntries(known) as Partial<QuotaSignal>), unit, source }
}

export interface Figures {
  readonly limit?: number | undefined
  readonly remaining?: number | undefined
  readonly resetMs?: number | undefined
  readonly windowMs?: number | undefined
}

function firstReset(answer: HttpAnswer, names: readonly string[]): number | undefined {
  const nowMs = peerNowMs(answer)
  for (const name of names) {
    const resetMs = parseReset(field(answer, name), nowMs)
    if (resetMs !== undefined) return resetMs
  }
  return undefined
}
