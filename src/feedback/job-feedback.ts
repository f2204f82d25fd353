import { checkCallOptions, gotText } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import { type Feedback, knownScope, type SaidRate, SCOPES, type Scope } from './feedback.ts'
import { sanitizeFeedback } from './sanitize.ts'

/** Feedback given by a processor. `scope` defaults to the queue, `reason` to "the processor". */
export type FeedbackInput = Reasoned &
  (
    | { readonly kind: 'pause'; readonly forMs?: number; readonly until?: Date; readonly hard?: boolean }
    | { readonly kind: 'slow'; readonly factor?: number; readonly rate?: SaidRate; readonly ttlMs?: number }
    | { readonly kind: 'concurrency'; readonly limit: number; readonly ttlMs?: number }
    | { readonly kind: 'retryJob'; readonly afterMs?: number }
    | { readonly kind: 'ok'; readonly remaining?: number; readonly resetMs?: number }
    | { readonly kind: 'fatal' }
  )

interface Reasoned {
  readonly scope?: Scope
  readonly reason?: string
}

/** The fields of each kind. */
const FIELDS: Readonly<Record<FeedbackInput['kind'], readonly string[]>> = {
  ok: ['remaining', 'resetMs'],
  pause: ['forMs', 'until', 'hard'],
  slow: ['factor', 'rate', 'ttlMs'],
  concurrency: ['limit', 'ttlMs'],
  retryJob: ['afterMs'],
  fatal: [],
}
const KINDS = Object.keys(FIELDS)

/**
 * Checks feedback given by a processor and converts it to the normal form.
 * @throws InvalidInputError
 */
export function readFeedback(input: FeedbackInput): Feedback {
  if (typeof input !== 'object' || input === null || !KINDS.includes(input.kind)) {
    throw new InvalidInputError(`feedback needs a kind, one of ${KINDS.join(', ')}; got ${JSON.stringify(input)}`)
  }
  if (!knownScope(input.scope)) throw new InvalidInputError(`scope must be ${SCOPES}; got ${gotText(input.scope)}`)
  checkCallOptions(`feedback of the kind ${input.kind}`, input, ['kind', 'scope', 'reason', ...FIELDS[input.kind]])
  const origin = {
    scope: input.scope ?? 'queue',
    source: 'user',
    reason: input.reason ?? 'the processor',
  } as const
  for (const name of ['forMs', 'afterMs', 'ttlMs', 'resetMs', 'remaining'] as const) checkLength(input, name)
  if (input.kind === 'pause') {
    const { until, hard = false } = input
    const forMs = until === undefined ? input.forMs : Math.max(0, Number(until) - Date.now())
    if (Number.isNaN(forMs)) throw new InvalidInputError(`until must be a valid date; got ${String(until)}`)
    return sanitizeFeedback({ kind: 'pause', hard, forMs, ...origin }) as Feedback
  }
  if (input.kind === 'slow') checkSlow(input)
  if (input.kind === 'concurrency' && !(Number.isSafeInteger(input.limit) && input.limit >= 1)) {
    throw new InvalidInputError(`limit must be a whole number >= 1; got ${JSON.stringify(input.limit)}`)
  }
  return sanitizeFeedback({ ...input, ...origin }) as Feedback
}

function checkLength(input: FeedbackInput, name: string): void {
  const value = (input as unknown as Record<string, unknown>)[name]
  if (value === undefined || (typeof value === 'number' && Number.isFinite(value) && value >= 0)) return
  throw new InvalidInputError(`${name} must be a number >= 0; got ${JSON.stringify(value)}`)
}

function checkSlow({ factor, rate }: { readonly factor?: number; readonly rate?: SaidRate }): void {
  const isFactor = typeof factor === 'number' && factor > 0 && factor < 1
  const isRate = rate !== undefined && rate.limit > 0 && rate.period > 0 && Number.isFinite(rate.period / rate.limit)
  if (isFactor === isRate) {
    const got = JSON.stringify({ factor, rate })
    throw new InvalidInputError(`slow needs either a factor > 0 and < 1 or a rate { limit, period (ms) }; got ${got}`)
  }
}
