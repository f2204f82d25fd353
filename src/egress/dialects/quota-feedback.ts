import type { Concurrency, Ok, SaidRate, Scope } from '../../feedback/feedback.ts'
import type { HttpSignals } from '../signals/http-signals.ts'
import type { QuotaSignal } from '../signals/quota-signal.ts'
import type { Wait } from '../signals/wait.ts'
import { peerName } from './build-feedback.ts'
import type { QuotaLimits } from './dialect.ts'

type OkFigures = Pick<Ok, 'remaining' | 'resetMs' | 'policyRate' | 'costUsed'>

/** The call succeeded. `undefined` figures are left out. */
export function ok(
  status: number,
  figures: { readonly [K in keyof OkFigures]: OkFigures[K] | undefined } = {},
  { scope = 'queue', source = 'status' }: Partial<Pick<Ok, 'scope' | 'source'>> = {},
): Ok {
  const known = Object.fromEntries(Object.entries(figures).filter(([, figure]) => figure !== undefined))
  const left = figures.remaining === undefined ? '' : `, ${figures.remaining} left`
  return { kind: 'ok', scope, source, reason: `${status}${left}`, ...known }
}

/**
 * The quotas that count requests in a successful answer, as one entry: the remaining units of the quota that allows the
 * slowest pace, and the lowest rate of all policies. Quotas of bytes follow, as the limit 'content-bytes'.
 */
export function okOfQuotas(status: number, quotas: readonly QuotaSignal[]): Ok[] {
  const bytes = ofFirstSource(quotas.filter(({ unit }) => unit === 'content-bytes'))
  const requests = ofFirstSource(quotas.filter(({ unit }) => unit === 'requests'))
  return [
    okOf(status, requests, 'queue'),
    ...(bytes.length > 0 ? [okOf(status, bytes, { limit: 'content-bytes' })] : []),
  ]
}

/** One entry per named quota, for the limit of that name, or the one in `quota`. */
export function okPerLimit(
  status: number,
  quotas: readonly QuotaSignal[],
  costs: Readonly<Record<string, number | undefined>>,
  limits: QuotaLimits = {},
): Ok[] {
  return quotas.flatMap((quota) => {
    if (quota.name === undefined) return []
    const costUsed = costs[quota.name]
    const entry = okOf(status, [quota], { limit: limits[quota.name] ?? quota.name })
    return costUsed === undefined ? entry : { ...entry, costUsed }
  })
}

/** The concurrency that the downstream's policies allow. */
export function concurrencyOf(status: number, quotas: readonly QuotaSignal[]): Concurrency[] {
  const limits = quotas.flatMap(({ unit, limit }) => (unit === 'concurrent-requests' && limit ? limit : []))
  if (limits.length === 0) return []
  const limit = Math.min(...limits)
  const reason = `${status} RateLimit-Policy ${limit} concurrent-requests`
  return [{ kind: 'concurrency', scope: 'queue', source: 'ratelimit', reason, limit }]
}

/**
 * How long a refused client has to wait by the quotas: until the last exhausted or violated one has more. A quota with
 * something left is not the cause: its reset may be hours away.
 */
export function waitOfQuotas({ quotas, problem }: HttpSignals): Wait | undefined {
  const isWhy = ({ remaining, name }: QuotaSignal) => !remaining || (name && problem?.violated.includes(name))
  return longestWait(ofFirstSource(quotas.filter((quota) => quota.resetMs !== undefined && isWhy(quota))))
}

export function longestWait(quotas: readonly QuotaSignal[]): Wait | undefined {
  const ends = quotas.filter(({ resetMs }) => resetMs !== undefined) as (QuotaSignal & { resetMs: number })[]
  const last = ends.toSorted((a, b) => b.resetMs - a.resetMs)[0]
  if (!last) return undefined
  const name = last.source === 'ratelimit' ? 'RateLimit' : 'X-RateLimit'
  return { ms: last.resetMs, name: `${name}${peerName(last.name)} reset`, source: last.source }
}

/** The lowest rate that policies allow, by their quota and window alone: remaining units say nothing about a rate. */
export function policyRate(quotas: readonly QuotaSignal[]): SaidRate | undefined {
  const rates = quotas.flatMap(({ limit, windowMs }) => (limit && windowMs ? { limit, period: windowMs } : []))
  return rates.toSorted((a, b) => a.limit / a.period - b.limit / b.period)[0]
}

function okOf(status: number, quotas: readonly QuotaSignal[], scope: Scope): Ok {
  const tightest = quotas
    .filter(({ remaining }) => remaining !== undefined)
    .toSorted((a, b) => pace(a) - pace(b) || Number(a.remaining) - Number(b.remaining))[0]
  const { remaining, resetMs } = tightest ?? {}
  return ok(
    status,
    { remaining, resetMs, policyRate: policyRate(quotas) },
    { scope, source: quotas[0]?.source ?? 'status' },
  )
}

/** Units per ms that last until the reset. */
function pace({ remaining = 0, resetMs }: QuotaSignal): number {
  if (remaining === 0) return 0
  return resetMs ? remaining / resetMs : Number.MAX_VALUE
}

/** RateLimit and X-RateLimit report the same quotas: the first family with any counts. */
function ofFirstSource(quotas: readonly QuotaSignal[]): readonly QuotaSignal[] {
  return quotas.filter(({ source }) => source === quotas[0]?.source)
}
