import { type Parameters, serializeItem } from 'structured-headers'
import { fieldName, type Policy, partitionKey, resetSeconds, tightest, wholeUnits, windowSeconds } from './policy.ts'

/**
 * The forms in which limits are reported.
 *
 * - 'draft-10': `RateLimit-Policy` and `RateLimit`, one item for each policy. (draft-ietf-httpapi-ratelimit-headers-10)
 * - 'draft-7': `RateLimit` as one dictionary, `limit=10, remaining=7, reset=40`, of the policy closest to exhaustion,
 *   and `RateLimit-Policy` with the quotas of all. It has no effect beside 'draft-10', whose fields have the same
 *   names.
 * - 'draft-6': `RateLimit-Limit`, `-Remaining`, `-Reset` of the policy closest to exhaustion, and `RateLimit-Policy`
 *   with the quotas of all. Beside 'draft-10', `RateLimit-Policy` has the form of 'draft-10'.
 * - 'x-ratelimit': `X-RateLimit-Limit`, `-Remaining`, `-Reset` of the same policy; the reset in seconds since 1970, as
 *   at GitHub.
 * - 'x-ratelimit-delta': the same, with the reset in seconds from now. It has no effect beside 'x-ratelimit'.
 */
export type HeaderForm = 'draft-10' | 'draft-7' | 'draft-6' | 'x-ratelimit' | 'x-ratelimit-delta'

type Fields = Record<string, string>
type Field = (report: Report) => string | number | undefined

/** What one response reports. */
interface Report {
  readonly policies: readonly Policy[]
  readonly nowMs: number
  /** The policy for fields that report only one, and its figures as fields have them. */
  readonly shown?: (Policy & Figures) | undefined
  /** The same, if it has a reset: draft-6 and draft-7 allow no figure without one. */
  readonly timed?: Figures | undefined
}

interface Figures {
  readonly limit: number
  readonly left: number
  /** Seconds from now. */
  readonly reset: number | undefined
  /** Seconds since 1970. */
  readonly instant: number | undefined
}

const limit: Field = ({ shown }) => shown?.limit
const left: Field = ({ shown }) => shown?.left

/** The fields of each form. Where several forms have a field of the same name, the first one with a value counts. */
const FORMS: Readonly<Record<HeaderForm, Readonly<Record<string, Field>>>> = {
  'draft-10': { 'ratelimit-policy': namedQuotas, ratelimit: namedLimits },
  'draft-7': {
    'ratelimit-policy': namelessQuotas,
    ratelimit: ({ timed }) => timed && `limit=${timed.limit}, remaining=${timed.left}, reset=${timed.reset}`,
  },
  'draft-6': {
    'ratelimit-policy': namelessQuotas,
    'ratelimit-limit': ({ timed }) => timed?.limit,
    'ratelimit-remaining': ({ timed }) => timed?.left,
    'ratelimit-reset': ({ timed }) => timed?.reset,
  },
  'x-ratelimit': {
    'x-ratelimit-limit': limit,
    'x-ratelimit-remaining': left,
    'x-ratelimit-reset': ({ shown }) => shown?.instant,
  },
  'x-ratelimit-delta': {
    'x-ratelimit-limit': limit,
    'x-ratelimit-remaining': left,
    'x-ratelimit-reset': ({ shown }) => shown?.reset,
  },
}

export const HEADER_FORMS = Object.keys(FORMS) as readonly HeaderForm[]
export const DEFAULT_FORMS: readonly HeaderForm[] = ['draft-10']

/**
 * The fields that report limits, by name in lower case. If any form is requested, `X-RateLimit-Bucket` is added for a
 * policy that has a bucket. Values that a policy does not have are left out.
 */
export function rateLimitFields(
  policies: readonly Policy[],
  forms: readonly HeaderForm[] = DEFAULT_FORMS,
  nowMs: number = Date.now(),
): Fields {
  const fields: Fields = {}
  const report = reportOf(policies, forms, nowMs)
  for (const form of HEADER_FORMS) {
    if (!forms.includes(form)) continue
    for (const name in FORMS[form]) {
      const value = fields[name] ?? FORMS[form][name]?.(report)
      if (value !== undefined) fields[name] = String(value)
    }
  }
  if (forms.length === 0 || policies.every(({ bucket }) => bucket === undefined)) return fields
  const shared = tightest(withFigures(policies, 'bucket'), nowMs)
  if (shared) fields['x-ratelimit-bucket'] = fieldName(shared.bucket as string)
  return fields
}

function reportOf(policies: readonly Policy[], forms: readonly HeaderForm[], nowMs: number): Report {
  // Most responses have only the lists of draft-10, which show all policies.
  const policy = forms.some((form) => form !== 'draft-10') ? shownAlone(policies, nowMs) : undefined
  if (!policy) return { policies, nowMs }
  const { quota, remaining, resetMs, clockMs = nowMs } = policy
  const { resetAtMs = resetMs === undefined ? undefined : clockMs + resetMs } = policy
  const figures = {
    limit: wholeUnits(quota as number),
    left: wholeUnits(remaining as number),
    reset: resetSeconds(policy, nowMs),
    instant: resetAtMs === undefined ? undefined : wholeUnits(Math.ceil(resetAtMs / 1000)),
  }
  const timed = figures.reset === undefined ? undefined : figures
  return { policies, nowMs, shown: { ...policy, ...figures }, timed }
}

/** The policy for fields that report only one: one with a reset, if there is any. */
function shownAlone(policies: readonly Policy[], nowMs: number): Policy | undefined {
  const known = withFigures(countsRequests(policies), 'remaining')
  const withResets = known.filter((policy) => resetSeconds(policy, nowMs) !== undefined)
  return tightest(withResets.length > 0 ? withResets : known, nowMs)
}

/** Policies that fields without a unit can report. */
function countsRequests(policies: readonly Policy[]): Policy[] {
  return withFigures(policies, 'quota').filter(({ unit = 'requests' }) => unit === 'requests')
}

function withFigures(policies: readonly Policy[], figure: 'quota' | 'remaining' | 'bucket'): Policy[] {
  return policies.filter((policy) => policy[figure] !== undefined)
}

/** draft-10: the quota of each policy. */
function namedQuotas({ policies }: Report): string | undefined {
  const quotas: string[] = []
  for (const policy of policies) {
    if (policy.quota !== undefined) quotas.push(textsOf(policy).quota + partitionText(policy))
  }
  return listOf(quotas)
}

/** draft-10: what is left of each policy. */
function namedLimits({ policies, nowMs }: Report): string | undefined {
  const limits: string[] = []
  for (const policy of policies) {
    if (policy.remaining === undefined) continue
    const t = resetSeconds(policy, nowMs)
    const left = `r=${wholeUnits(policy.remaining)}${t === undefined ? '' : `;t=${t}`}`
    limits.push(`${textsOf(policy).name};${left}${partitionText(policy)}`)
  }
  return listOf(limits)
}

/**
 * draft-6 and draft-7: quotas have no names there, so no two may be equal; each must have a window, and all count
 * requests. That of the shown policy takes precedence over an equal one.
 */
function namelessQuotas({ policies, shown }: Report): string | undefined {
  const quotas = new Map<number, string>()
  for (const policy of [...(shown ? [shown] : []), ...countsRequests(policies)]) {
    const quota = wholeUnits(policy.quota as number)
    const w = windowSeconds(policy)
    if (w !== undefined && !quotas.has(quota)) quotas.set(quota, `${quota};w=${w}`)
  }
  return listOf([...quotas.values()])
}

function listOf(items: readonly string[]): string | undefined {
  return items.length > 0 ? items.join(', ') : undefined
}

interface Texts {
  readonly name: string
  readonly of: Policy
  readonly quota: string
}

/** Policies come from the configuration, so there are few. The bound prevents a leak. */
const MOST_TEXTS = 1000
const texts = new Map<string, Texts>()

/** The parts of a policy's fields that do not depend on the units left. */
function textsOf(policy: Policy): Texts {
  const known = texts.get(policy.name)
  if (known && isSameQuota(known.of, policy)) return known
  if (texts.size >= MOST_TEXTS) texts.clear()
  const made = { name: serializeItem(fieldName(policy.name)), of: policy, quota: quotaText(policy) }
  texts.set(policy.name, made)
  return made
}

function isSameQuota(one: Policy, other: Policy): boolean {
  return one.quota === other.quota && one.windowMs === other.windowMs && one.unit === other.unit
}

function quotaText(policy: Policy): string {
  const { name, quota, unit } = policy
  if (quota === undefined) return ''
  const parameters: Parameters = new Map([['q', wholeUnits(quota)]])
  // The default unit is left out.
  if (unit !== undefined && unit !== 'requests') parameters.set('qu', unit)
  const w = windowSeconds(policy)
  if (w !== undefined) parameters.set('w', w)
  return serializeItem([fieldName(name), parameters])
}

function partitionText({ partitionKey: key }: Policy): string {
  return key === undefined ? '' : `;pk=${serializeItem(partitionKey(key) as Uint8Array<ArrayBuffer>)}`
}
