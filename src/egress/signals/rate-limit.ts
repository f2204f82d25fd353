import {
  type BareItem,
  type Dictionary,
  isInnerList,
  type Parameters,
  parseDictionary,
  parseList,
  Token,
} from 'structured-headers'
import type { HttpAnswer } from '../answer.ts'
import { field, MAX_LIST } from './field.ts'
import { peerNowMs } from './instant.ts'
import { type Figures, type QuotaSignal, type QuotaUnit, quotaSignal } from './quota-signal.ts'
import { clampReset, parseReset } from './reset.ts'

/**
 * `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers, in every form they have had: the list of
 * drafts 08 to 11, the dictionary of 07, the three fields of 06 and before. Violations are ignored, as the drafts
 * require, except those of their own examples: names that are not Strings, and a missing `r`.
 */
export function readRateLimit(answer: HttpAnswer): QuotaSignal[] {
  const text = field(answer, 'ratelimit', MAX_LIST)
  const policies = readPolicies(answer)
  const items = listItems(text)
  if (items.length > 0) return joinByName(items, policies)
  return joinByQuota(dictionaryFigures(text) ?? {}, policies) ?? readTriple(answer, policies)
}

/** Drafts 08 to 11: a limit and its policy have the same name, and the same partition if both have one. */
function joinByName(items: readonly ListItem[], policies: readonly Policy[]): QuotaSignal[] {
  const byName = new Map(policies.map((policy) => [policy.name, policy]))
  const byPartition = new Map(policies.map((policy) => [keyOf(policy.name, policy.partition), policy]))
  const joined = new Set<Policy>()
  const limits = items.flatMap((item) => {
    const limit = limitOf(item)
    if (!limit) return []
    const policy = byPartition.get(keyOf(limit.name, limit.partition)) ?? byName.get(limit.name)
    if (policy) joined.add(policy)
    const figures = { ...limit.figures, limit: policy?.limit, windowMs: policy?.windowMs }
    return quotaSignal(figures, policy?.unit ?? 'requests', 'ratelimit', limit.name, limit.partition) ?? []
  })
  return [...limits, ...policies.filter((policy) => !joined.has(policy)).flatMap(policySignal)]
}

function limitOf([value, parameters]: ListItem) {
  const name = nameOf(value)
  const remaining = wholeNumber(parameters.get('r'))
  const reset = wholeNumber(parameters.get('t'))
  const isWrong = (key: string, figure: number | undefined) => parameters.has(key) && figure === undefined
  if (name === undefined || isWrong('r', remaining) || isWrong('t', reset)) return undefined
  if (remaining === undefined && reset === undefined) return undefined
  return { name, partition: partitionOf(parameters), figures: { remaining, resetMs: secondsMs(reset) } }
}

/** Drafts up to 07: the figures are those of the policy closest to exhaustion, identified by its quota. */
function joinByQuota(figures: Figures, policies: readonly Policy[]): QuotaSignal[] | undefined {
  const policy = policies.find(({ limit }) => limit === figures.limit)
  const signal = quotaSignal({ ...figures, windowMs: policy?.windowMs }, policy?.unit ?? 'requests', 'ratelimit')
  if (!signal) return undefined
  return [signal, ...policies.filter((other) => other !== policy).flatMap(policySignal)]
}

/** Draft 07: `limit=100, remaining=50, reset=5`; without `limit` and `reset` it is something else. */
function dictionaryFigures(text: string | undefined): Figures | undefined {
  const members = dictionaryOf(text)
  const figures = ['limit', 'remaining', 'reset'].map((key) => wholeNumber(members?.get(key)?.[0]))
  const [limit, remaining, reset] = figures
  if (limit === undefined || reset === undefined) return undefined
  return members?.has('remaining') && remaining === undefined
    ? undefined
    : { limit, remaining, resetMs: secondsMs(reset) }
}

function dictionaryOf(text: string | undefined): Dictionary | undefined {
  try {
    return text === undefined ? undefined : parseDictionary(text)
  } catch {
    return undefined
  }
}

/**
 * Draft 06 and before, where `RateLimit-Limit` may also hold the policies: `100, 100;w=60`. GitLab sends the reset as
 * an instant.
 */
function readTriple(answer: HttpAnswer, policies: readonly Policy[]): QuotaSignal[] {
  const [limit, ...inside] = listItems(field(answer, 'ratelimit-limit', MAX_LIST))
  const remaining = wholeNumber(listItems(field(answer, 'ratelimit-remaining'))[0]?.[0])
  const figures = {
    limit: wholeNumber(limit?.[0]),
    remaining,
    resetMs: parseReset(field(answer, 'ratelimit-reset'), peerNowMs(answer)),
  }
  const all = policies.length > 0 ? policies : policiesOf(inside)
  return joinByQuota(figures, all) ?? all.flatMap(policySignal)
}

function policySignal({ name, partition, limit, windowMs, unit }: Policy): QuotaSignal[] {
  return [quotaSignal({ limit, windowMs }, unit, 'ratelimit', name, partition) as QuotaSignal]
}

function keyOf(name: string | undefined, partition: string | undefined): string {
  return JSON.stringify([name, partition])
}

function secondsMs(seconds: number | undefined): number | undefined {
  return seconds === undefined ? undefined : clampReset(seconds * 1000)
}

/** One item of `RateLimit-Policy`. */
interface Policy {
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
function readPolicies(answer: HttpAnswer): Policy[] {
  return policiesOf(listItems(field(answer, 'ratelimit-policy', MAX_LIST)))
}

function policiesOf(items: readonly ListItem[]): Policy[] {
  return items.flatMap((item) => policyOf(item) ?? [])
}

type ListItem = readonly [value: BareItem, parameters: Parameters]

/** The Items of a List of RFC 9651, without its Inner Lists; none if it is not a List. */
function listItems(text: string | undefined): ListItem[] {
  if (text === undefined) return []
  try {
    const list = parseList(text)
    return list.flatMap((item) => (isInnerList(item) ? [] : [item]))
  } catch {
    return []
  }
}

/** A policy's name: a String by the drafts, a Token or an Integer in their own examples and in practice. */
function nameOf(value: BareItem): string | undefined {
  if (typeof value === 'string' || value instanceof Token) return String(value)
  return wholeNumber(value)?.toString()
}

/** An Integer, 0 or more; not a Decimal. */
function wholeNumber(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : undefined
}

function partitionOf(parameters: Parameters): string | undefined {
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
