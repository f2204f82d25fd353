import type { HttpAnswer } from 'sluice/egress'
import {
  type HttpSignals,
  MAX_PAUSE_MS,
  oneLine,
  type QuotaSignal,
  readHttpSignals,
  throttled,
  waitOfQuotas,
} from 'sluice/internal'
import type { Quota } from './gate.ts'

/** Further policies of a longer list are ignored. */
const MAX_NAMES = 8

/** What one answer means for a client. Buckets have the names of their gates. */
export interface Reading {
  /** The buckets that the request counted against, as far as the answer names them. */
  readonly names: readonly string[]
  /** What is left, by bucket. */
  readonly quotas: ReadonlyMap<string, Quota>
  /** Set if the request was not processed because there were too many. */
  readonly refusal: RateRefusal | undefined
  /** When to retry, ms from the arrival of the answer. */
  readonly waitMs: number | undefined
  /** Whether the downstream can take more. */
  readonly isGood: boolean
}

export interface RateRefusal {
  /** The buckets to hold. */
  readonly buckets: readonly string[]
}

/**
 * Finds the buckets that an answer reports on or refuses. `Retry-After` and its forms in ms take precedence over the
 * reset of an exhausted quota. (draft-ietf-httpapi-ratelimit-headers-10, section 5)
 */
export function readReading(answer: HttpAnswer, origin: string): Reading {
  const signals = readHttpSignals(answer)
  const { wait, quotas, problem } = signals
  const shared = sharedName(answer, origin)
  const named = quotas.filter(({ name }) => name !== undefined)
  // If policies have names, figures without a name repeat theirs.
  const meant = named.length > 0 ? named : quotas
  const nameOf = (quota: QuotaSignal) => policyName(quota, origin) ?? shared ?? origin
  const names = [...new Set([...(shared ? [shared] : []), ...named.map(nameOf)])].slice(0, MAX_NAMES)
  const byName = new Map<string, Quota>()
  for (const quota of meant) {
    const name = nameOf(quota)
    const figures = figuresOf(quota, wait?.ms)
    if (figures && !byName.has(name) && (name === origin || names.includes(name))) byName.set(name, figures)
  }
  const exhausted = [...byName].filter(([, { remaining }]) => remaining === 0).map(([name]) => name)
  const waitMs = waitOf(answer, signals, exhausted.length > 0)
  const violated = problem?.violated.map((name) => policyName({ name }, origin))
  const guilty = [names.filter((name) => violated?.includes(name)), exhausted, names]
  const refusal = isRefused(answer.status, waitMs)
    ? { buckets: isOfAll(answer) ? [origin] : (guilty.find((some) => some.length > 0) ?? [origin]) }
    : undefined
  return {
    names,
    quotas: byName,
    refusal,
    waitMs,
    isGood: answer.status < 500 && !refusal,
  }
}

/** Discord names buckets that several paths share, GitHub the resource to which paths belong. */
function sharedName({ headers }: HttpAnswer, origin: string): string | undefined {
  for (const field of ['x-ratelimit-bucket', 'x-ratelimit-resource']) {
    if (headers[field]) return `${origin} ${oneLine(`${field}=${headers[field]}`)}`
  }
  return undefined
}

function policyName({ name, partition }: Pick<QuotaSignal, 'name' | 'partition'>, origin: string): string | undefined {
  if (name === undefined) return undefined
  return `${origin} ${oneLine(`ratelimit=${name}${partition === undefined ? '' : `;pk=${partition}`}`)}`
}

/**
 * Only requests can be paced by counting them; of other units it only matters when they are used up.
 * @param waitMs from `Retry-After`, which takes precedence over a reset
 */
function figuresOf({ remaining, limit, resetMs, unit }: QuotaSignal, waitMs: number | undefined): Quota | undefined {
  if (remaining === undefined || resetMs === undefined || unit === 'concurrent-requests') return undefined
  if (unit !== 'requests' && remaining > 0) return undefined
  const untilMs = remaining === 0 && waitMs !== undefined ? waitMs : resetMs
  return { remaining, limit, resetMs: Math.min(untilMs, MAX_PAUSE_MS) }
}

/** A reset is a time to retry only if a quota caused the refusal. */
function waitOf(answer: HttpAnswer, signals: HttpSignals, isExhausted: boolean): number | undefined {
  if (answer.status === 429) return throttled(answer, signals).find((said) => said.kind === 'pause')?.forMs
  const wait = signals.wait ?? (answer.status === 403 && isExhausted ? waitOfQuotas(signals) : undefined)
  return wait && Math.min(wait.ms, MAX_PAUSE_MS)
}

/** 429 always, 503 with a time, 403 with a time or an exhausted quota, as GitHub sends it. */
function isRefused(status: number, waitMs: number | undefined): boolean {
  return status === 429 || ([403, 503].includes(status) && waitMs !== undefined)
}

/** 503 is about the server, not about the client's quota. (RFC 9110, section 15.6.4) */
function isOfAll({ status, headers }: HttpAnswer): boolean {
  return status === 503 || headers['x-ratelimit-global'] === 'true' || headers['x-ratelimit-scope'] === 'global'
}
