import { type BareItem, type Item, type Parameters, serializeItem, serializeList } from 'structured-headers'
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

export const HEADER_FORMS: readonly HeaderForm[] = [
  'draft-10',
  'draft-7',
  'draft-6',
  'x-ratelimit',
  'x-ratelimit-delta',
]
export const DEFAULT_FORMS: readonly HeaderForm[] = ['draft-10']

type Fields = Record<string, string>

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
  if (forms.includes('draft-6')) Object.assign(fields, tripleFields(policies, nowMs))
  if (forms.includes('draft-7')) Object.assign(fields, dictionaryFields(policies, nowMs))
  if (forms.includes('draft-10')) addLists(fields, policies, nowMs)
  if (forms.includes('x-ratelimit-delta')) Object.assign(fields, legacyFields(policies, nowMs, false))
  if (forms.includes('x-ratelimit')) Object.assign(fields, legacyFields(policies, nowMs, true))
  if (forms.length === 0 || policies.every(({ bucket }) => bucket === undefined)) return fields
  const shared = tightest(withFigures(policies, 'bucket'), nowMs)
  if (shared) fields['x-ratelimit-bucket'] = fieldName(shared.bucket as string)
  return fields
}

/** Every response has them: the constant parts are built once. */
function addLists(fields: Fields, policies: readonly Policy[], nowMs: number): void {
  const quotas: string[] = []
  const limits: string[] = []
  for (const policy of policies) {
    const { quota, remaining } = policy
    const pk = partitionText(policy)
    const known = textsOf(policy)
    if (quota !== undefined) quotas.push(known.quota + pk)
    if (remaining === undefined) continue
    const t = resetSeconds(policy, nowMs)
    limits.push(`${known.name};r=${wholeUnits(remaining)}${t === undefined ? '' : `;t=${t}`}${pk}`)
  }
  if (quotas.length > 0) fields['ratelimit-policy'] = quotas.join(', ')
  if (limits.length > 0) fields.ratelimit = limits.join(', ')
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
  // The default unit is left out.
  const qu = unit === 'requests' ? undefined : unit
  return serializeItem([fieldName(name), parameters({ q: wholeUnits(quota), qu, w: windowSeconds(policy) })])
}

function partitionText({ partitionKey: key }: Policy): string {
  return key === undefined ? '' : `;pk=${serializeItem(partitionKey(key) as Uint8Array<ArrayBuffer>)}`
}

/**
 * draft-ietf-httpapi-ratelimit-headers-06: quotas have no names there, so no two may be equal; each must have a window,
 * and all count requests.
 */
function tripleFields(policies: readonly Policy[], nowMs: number): Fields {
  const shown = shownAlone(policies, nowMs)
  const field = quotasField(policies, shown)
  const reset = shown && resetSeconds(shown, nowMs)
  // None of the three is allowed without a reset.
  if (!shown || reset === undefined) return field
  return { ...field, ...countFields('ratelimit', shown), 'ratelimit-reset': String(reset) }
}

/** draft-ietf-httpapi-ratelimit-headers-07: the same figures as members of one field, and the same quotas. */
function dictionaryFields(policies: readonly Policy[], nowMs: number): Fields {
  const shown = shownAlone(policies, nowMs)
  const field = quotasField(policies, shown)
  const reset = shown && resetSeconds(shown, nowMs)
  if (!shown || reset === undefined) return field
  const members = { limit: shown.quota, remaining: shown.remaining, reset }
  const text = Object.entries(members).map(([key, figure]) => `${key}=${wholeUnits(figure as number)}`)
  return { ...field, ratelimit: text.join(', ') }
}

/** Quotas without names: that of the shown policy takes precedence over an equal one. */
function quotasField(policies: readonly Policy[], shown: Policy | undefined): Fields {
  const quotas = new Map<number, Item>()
  for (const policy of [...(shown ? [shown] : []), ...countsRequests(policies)]) {
    const quota = wholeUnits(policy.quota as number)
    const w = windowSeconds(policy)
    if (w !== undefined && !quotas.has(quota)) quotas.set(quota, [quota, parameters({ w })])
  }
  return listField('ratelimit-policy', [...quotas.values()])
}

function legacyFields(policies: readonly Policy[], nowMs: number, isInstant: boolean): Fields {
  const shown = shownAlone(policies, nowMs)
  if (!shown) return {}
  const reset = isInstant ? resetInstant(shown, nowMs) : resetSeconds(shown, nowMs)
  return {
    ...countFields('x-ratelimit', shown),
    ...(reset === undefined ? {} : { 'x-ratelimit-reset': String(reset) }),
  }
}

/** The policy for fields that report only one: one with a reset, if there is any. */
function shownAlone(policies: readonly Policy[], nowMs: number): Policy | undefined {
  const known = withFigures(countsRequests(policies), 'remaining')
  const withReset = known.filter((policy) => resetSeconds(policy, nowMs) !== undefined)
  return tightest(withReset.length > 0 ? withReset : known, nowMs)
}

function countFields(family: string, { quota, remaining }: Policy): Fields {
  return {
    [`${family}-limit`]: String(wholeUnits(quota as number)),
    [`${family}-remaining`]: String(wholeUnits(remaining as number)),
  }
}

/** Seconds since 1970, rounded up. */
function resetInstant({ resetAtMs, resetMs, clockMs }: Policy, nowMs: number): number | undefined {
  const atMs = resetAtMs ?? (resetMs === undefined ? undefined : (clockMs ?? nowMs) + resetMs)
  return atMs === undefined ? undefined : wholeUnits(Math.ceil(atMs / 1000))
}

/** Policies that fields without a unit can report. */
function countsRequests(policies: readonly Policy[]): Policy[] {
  return withFigures(policies, 'quota').filter(({ unit = 'requests' }) => unit === 'requests')
}

function withFigures(policies: readonly Policy[], figure: 'quota' | 'remaining' | 'bucket'): Policy[] {
  return policies.filter((policy) => policy[figure] !== undefined)
}

function listField(name: string, items: Item[]): Fields {
  return items.length > 0 ? { [name]: serializeList(items) } : {}
}

function parameters(values: Readonly<Record<string, BareItem | undefined>>): Parameters {
  const given: Parameters = new Map()
  for (const [key, value] of Object.entries(values)) if (value !== undefined) given.set(key, value)
  return given
}
