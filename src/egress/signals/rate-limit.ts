import { type Dictionary, parseDictionary } from 'structured-headers'
import type { HttpAnswer } from '../answer.ts'
import { field, MAX_LIST } from './field.ts'
import { peerNowMs } from './instant.ts'
import { type Figures, type QuotaSignal, quotaSignal } from './quota-signal.ts'
import {
  type ListItem,
  listItems,
  nameOf,
  type Policy,
  partitionOf,
  policiesOf,
  readPolicies,
  wholeNumber,
} from './rate-limit-policy.ts'
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
