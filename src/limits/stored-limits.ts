import type { Redis } from 'ioredis'
import type { ShapeMode } from '../mode.ts'
import { TIER_FIELDS, type TierRule } from './definition.ts'
import { checkLimitName, controlKey, DEFAULT_LIMIT_PREFIX, hashTag, switchKey } from './limit-keys.ts'
import { createLimiter, type Limiter } from './limiter.ts'
import type { LimiterOptions } from './limiter-options.ts'
import { partControls } from './spread-keys.ts'

/** As described by `LimitSet`: the algorithm and its parameters, of each tier too. */
type Definition = Readonly<Record<string, unknown>> & {
  readonly spread?: 'key'
  readonly tiers?: Readonly<Record<string, TierRule>>
}

/** A limit that programs have declared, as stored in Redis. */
export interface StoredLimit {
  readonly name: string
  /** The common definition of all programs that use the name: options of `createLimiter`. */
  readonly definition: Definition
  readonly version: number | undefined
  /** Host and process id of the program that declared it. */
  readonly by: string | undefined
  /** The mode that was set at run time; undefined: the one given in the code. */
  readonly mode: ShapeMode | undefined
}

/** A key that is refused even with units left. */
export interface Block {
  /** As stored: long texts, and those with special characters, are hashed. With tiers: `tier:key`. */
  readonly key: string
  readonly until: Date
}

/** Number of keys that one SCAN visits. */
const SCANNED = 1000

/** The names of the limits under a prefix, sorted. Searches the whole key space. */
export async function limitNames(redis: Redis, prefix = DEFAULT_LIMIT_PREFIX): Promise<string[]> {
  const start = `${prefix}:limit:`
  const form = hashTag(prefix) === undefined ? /^\{([A-Za-z0-9_.-]+)\}$/ : /^([A-Za-z0-9_.-]+)$/
  const names = new Set<string>()
  let cursor = '0'
  do {
    const [next, keys] = await redis.scan(cursor, 'MATCH', `${escapePattern(start)}*`, 'COUNT', SCANNED)
    for (const key of keys) {
      const name = form.exec(key.slice(start.length))?.[1]
      if (name !== undefined) names.add(name)
    }
    cursor = next
  } while (cursor !== '0')
  return [...names].toSorted()
}

/** @returns undefined if no program has declared it. @throws InvalidLimitError for an impossible name */
export async function storedLimit(
  redis: Redis,
  name: string,
  prefix = DEFAULT_LIMIT_PREFIX,
): Promise<StoredLimit | undefined> {
  const control = controlKey(prefix, checkLimitName(name))
  const [[definition, version, by], text] = await Promise.all([
    redis.hmget(control, 'definition', 'version', 'by'),
    redis.get(switchKey(control)),
  ])
  if (!definition) return undefined
  const [mode = '-'] = (text ?? '-').split(' ')
  return {
    name,
    definition: JSON.parse(definition),
    version: version ? Number(version) : undefined,
    by: by ?? undefined,
    mode: mode === '-' ? undefined : (mode as ShapeMode),
  }
}

/** The keys that are blocked, the longest block first. */
export async function blockedKeys(
  redis: Redis,
  { name, definition }: StoredLimit,
  prefix = DEFAULT_LIMIT_PREFIX,
): Promise<Block[]> {
  const controls = definition.spread ? partControls(prefix, name) : [controlKey(prefix, name)]
  const [[seconds], ...found] = await Promise.all([
    redis.time(),
    ...controls.map((control) => blocksOf(redis, control)),
  ])
  return found
    .flat()
    .filter(({ until }) => until.getTime() > Number(seconds) * 1000)
    .toSorted((one, other) => other.until.getTime() - one.until.getTime())
}

async function blocksOf(redis: Redis, control: string): Promise<Block[]> {
  const members = await redis.zrange(`${control}:blocks`, '0', '-1', 'WITHSCORES')
  const pairs = Array.from({ length: members.length / 2 }, (_, i) => members.slice(2 * i, 2 * i + 2))
  return pairs.map(([state = '', us]) => {
    // `<control>:<code>~<tier>:<key>`
    const [, tier, key = ''] = /^:[a-z](?:~([^:]+))?:(.*)$/.exec(state.slice(control.length)) ?? []
    return { key: tier === undefined ? key : `${tier}:${key}`, until: new Date(Number(us) / 1000) }
  })
}

/** People wait for longer than requests do. ms */
const TOOL_TIMEOUT_MS = 10_000

/**
 * A limiter with the stored definition, for tools.
 * @param tier applies to all keys; undefined: the rule without tiers
 */
export function limiterOf(
  redis: Redis,
  { name, definition, version }: StoredLimit,
  { prefix = DEFAULT_LIMIT_PREFIX, tier }: { readonly prefix?: string; readonly tier?: string | undefined } = {},
): Limiter {
  const { tiers, ...rule } = definition
  const tiered = tiers === undefined ? {} : { tiers: tierRules(tiers), tierOf: () => tier }
  const timeoutMs = TOOL_TIMEOUT_MS
  return createLimiter(redis, { ...rule, ...tiered, name, prefix, version, timeoutMs } as LimiterOptions)
}

/** Of a tier's description, only these can differ from the rule without tiers. */
function tierRules(tiers: Readonly<Record<string, TierRule>>): Record<string, TierRule> {
  const rules = Object.entries(tiers).map(([tier, rule]) => {
    const fields = TIER_FIELDS.flatMap((field) => (rule[field] === undefined ? [] : [[field, rule[field]]]))
    return [tier, Object.fromEntries(fields)]
  })
  return Object.fromEntries(rules)
}

function escapePattern(text: string): string {
  return text.replaceAll(/[\\*?[\]]/g, '\\$&')
}
