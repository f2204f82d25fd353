import type { Source } from '../../feedback/feedback.ts'
import type { HttpAnswer } from '../answer.ts'
import { field } from './field.ts'
import { parseHttpDate, peerNowMs } from './instant.ts'
import { clampReset, parseReset } from './reset.ts'

/** A wait given by the downstream. */
export interface Wait {
  /** ms from now, whole, 0 or more */
  readonly ms: number
  /** The field that gave it, for reasons: 'Retry-After'. */
  readonly name: string
  readonly source: Source
}

/** In ms. More precise than `Retry-After`, so they come first. */
const MS_FIELDS = ['retry-after-ms', 'x-ms-retry-after-ms', 'x-amz-retry-after']

// Fractions and signs are not valid delay-seconds of RFC 9110 §10.2.3, but are sent.
const DELAY = /^-?\d{1,15}(?:\.\d{1,9})?$/

/**
 * When to retry: a vendor's field in ms, otherwise `Retry-After` (seconds, or a date measured against the answer's own
 * `Date`; the longest of several), otherwise a vendor's field in the form of a reset.
 * @param vendorField such as MailerLite's 'x-ratelimit-retry-after'
 */
export function readWait(answer: HttpAnswer, vendorField?: string): Wait | undefined {
  for (const name of MS_FIELDS) {
    const text = field(answer, name)
    if (text !== undefined && DELAY.test(text)) return { ms: clampReset(Number(text)), name, source: 'retry-after' }
  }
  const ms = retryAfterMs(answer)
  if (ms !== undefined) return { ms, name: 'Retry-After', source: 'retry-after' }
  const vendorMs = vendorField && parseReset(field(answer, vendorField), peerNowMs(answer))
  return typeof vendorMs === 'number' ? { ms: vendorMs, name: vendorField as string, source: 'retry-after' } : undefined
}

/** One value of several lines, joined by commas: a date may have one after its weekday. */
const ONE_OF_SEVERAL = /[A-Z][a-z]{2,8}, [^,]+|[^,\s][^,]*/g

/** The longest of several lines, such as one added by a proxy: until then some server on the way wants no call. */
function retryAfterMs(answer: HttpAnswer): number | undefined {
  const lines = field(answer, 'retry-after')?.match(ONE_OF_SEVERAL) ?? []
  const nowMs = peerNowMs(answer)
  const waits = lines.map((line) => delayMs(line.trim(), nowMs)).filter((ms) => ms !== undefined)
  return waits.length > 0 ? Math.max(...waits) : undefined
}

function delayMs(text: string, nowMs: number): number | undefined {
  if (DELAY.test(text)) return clampReset(Number(text) * 1000)
  const instant = parseHttpDate(text, nowMs)
  return instant === undefined ? undefined : clampReset(instant - nowMs)
}
