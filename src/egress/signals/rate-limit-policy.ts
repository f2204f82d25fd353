import { type BareItem, isInnerList, type Parameters, parseList, Token } from 'structured-headers'
import type { HttpAnswer } from '../answer.ts'
import { field, MAX_LIST } from './field.ts'
import type { QuotaUnit } from './quota-signal.ts'

/** One item of `RateLimit-Policy`. */
export interface Policy {
  /** Drafts 08 to 11 name policies; 04 to 07 identify them by their quota. */
  readonly name?: string
  readonly limit: number
  readonly windowMs?: number
  readonly unit: QuotaUnit
  readonly partition?: string
}

/** 366 days: no quota has a longer window, and a longer one would not be a rate. */
const MAX_WINDOW_S = 31_622_400

/** The registry of draft 10 writes `request`, its text `requests`. */
const UNITS: Readonly<Record<string, QuotaUnit>> = {
  request: 'requests',
  requests: 'requests',
  'content-bytes': 'content-bytes',
  'concurrent-requests': 'concurrent-requests',
}

/** `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers 04 to 11; items that violate its rules are left out. */
export function readPolicies(answer: HttpAnswer): Policy[] {
  return policiesOf(listItems(field(answer, 'ratelimit-policy', MAX_LIST)))
}

export function policiesOf(items: readonly ListItem[]): Policy[] {
  return items.flatMap((item) => policyOf(item) ?? [])
}

export type ListItem = readonly [value: BareItem, parameters: Parameters]

/** The Items of a List of RFC 9651, without its Inner Lists; none if it is not a List. */
export function listItems(text: string | undefined): ListItem[] {
  if (text === undefined) return []
  try {
    const list = parseList(text)
    return list.flatMap((item) => (isInnerList(item) ? [] : [item]))
  } catch {
    return []
  }
}

/** A policy's name: a String by the drafts, a Token or an Integer in their own examples and in practice. */
export function nameOf(value: BareItem): string | undefined {
  if (typeof value === 'string' || value instanceof Token) return String(value)
  return wholeNumber(value)?.toString()
}

/** An Integer, 0 or more; not a Decimal. */
export function wholeNumber(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : undefined
}

export function partitionOf(parameters: Parameters): string | undefined {
  const key = parameters.get('pk')
  // Not with Buffer, which browsers lack.
  return key instanceof ArrayBuffer ? btoa(String.fromCharCode(...new Uint8Array(key))) : undefined
}

function policyOf([value, parameters]: ListItem): Policy | undefined {
  const isNamed = parameters.has('q')
  const name = isNamed ? nameOf(value) : undefined
  const limit = isNamed ? wholeNumber(parameters.get('q')) : wholeNumber(value)
  const window = parameters.has('w') ? wholeNumber(parameters.get('w')) : undefined
  if (limit === undefined || (isNamed && name === undefined)) return undefined
  if (parameters.has('w') && !(window && window <= MAX_WINDOW_S)) return undefined
  const partition = partitionOf(parameters)
  return {
    limit,
    unit: unitOf(parameters.get('qu')),
    ...(name === undefined ? {} : { name }),
    ...(window === undefined ? {} : { windowMs: window * 1000 }),
    ...(partition === undefined ? {} : { partition }),
  }
}

function unitOf(value: BareItem | undefined): QuotaUnit {
  if (value === undefined) return 'requests'
  const name = nameOf(value) ?? ''
  return Object.hasOwn(UNITS, name) ? (UNITS[name] as QuotaUnit) : 'other'
}
