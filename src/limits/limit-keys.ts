import { createHash } from 'node:crypto'
import { InvalidKeyError, InvalidLimitError } from '../errors.ts'
import type { Algorithm } from './definition.ts'

/** What is limited: a user, an address, a tenant. An array combines several parts into one key. */
export type LimitKey = string | number | readonly (string | number)[]

export const DEFAULT_LIMIT_PREFIX = 'sluice'

/**
 * Stands for a missing key: all such calls share one state, which no key of a caller names. It is the only key without
 * parts, and is recognised by its identity.
 */
export const ONE_FOR_ALL: LimitKey = Object.freeze([])
/** Its stored form. */
const KEYLESS = '*'

/** Short, because they are part of each key. A limit whose algorithm changes does not find the old one's state. */
const CODES: Readonly<Record<Algorithm, string>> = {
  'fixed-window': 'f',
  'sliding-window-log': 'l',
  'sliding-window-counter': 'c',
  'token-bucket': 't',
  'leaky-bucket': 'b',
  gcra: 'g',
  concurrency: 'n',
}

/** Names of limits, and names in `by`. */
export const LIMIT_NAME = /^[A-Za-z0-9_.-]{1,64}$/
/** In words, for messages. */
export const NAME_RULE = "1 to 64 letters, digits, '_', '.' or '-'"
/** Stored verbatim: no colon (separates parts), no braces (hash tags), no '#' (marks a hash). */
const PLAIN = /^[A-Za-z0-9_.@-]{1,64}$/
const HASH_MARK = '#'
const MAX_LENGTH = 4096

/** Whether it can be the name of a limit, or a name in `by`. */
export function isLimitName(name: unknown): name is string {
  return typeof name === 'string' && LIMIT_NAME.test(name)
}

/** Checks a limit's name: it becomes part of every key, and of metrics and headers. */
export function checkLimitName(name: unknown): string {
  if (isLimitName(name)) return name
  throw new InvalidLimitError(`a limit needs a name of ${NAME_RULE}; got ${JSON.stringify(name) ?? name}`)
}

/**
 * The control hash of a limit; the states of its keys are stored under it. All share a hash tag: the prefix's own,
 * otherwise the name. See docs/redis-keys.md.
 */
export function controlKey(prefix: string, name: string): string {
  return hashTag(prefix) === undefined ? `${prefix}:limit:{${name}}` : `${prefix}:limit:${name}`
}

/** The string that every decision reads about a limit; see `lua/limits/control.lua`. */
export function switchKey(control: string): string {
  return `${control}:switch`
}

/** The text between a limit's control key and an encoded key. @param tier '' for a limit without tiers */
export function statePrefix(algorithm: Algorithm, tier = ''): string {
  return `:${CODES[algorithm]}${tier && `~${tier}`}:`
}

/** The hash tag, which determines a key's hash slot on a cluster: the text between the first braces. */
export function hashTag(key: string): string | undefined {
  return /^[^{]*\{([^}]+)\}/.exec(key)?.[1]
}

/**
 * A key as stored in Redis. Text that is long or has characters other than letters, digits, '_', '.', '@' and '-' is
 * hashed to a fixed length, so that no input collides with another key, or with the state of calls without one: by
 * SHA-1, which scripts of Redis have too (`lua/groups/limits-of.lua`).
 * @throws InvalidKeyError
 */
export function encodeKey(key: LimitKey): string {
  if (typeof key === 'string' && PLAIN.test(key)) return key
  if (typeof key === 'number' && Number.isFinite(key)) return String(key)
  if (key === ONE_FOR_ALL) return KEYLESS
  if (Array.isArray(key) && key.length > 0) return encodeParts(key as readonly (string | number)[])
  return encodeText(key)
}

function encodeParts(parts: readonly (string | number)[]): string {
  return parts.map((part) => (Array.isArray(part) ? encodeText(part) : encodeKey(part))).join(':')
}

function encodeText(key: unknown): string {
  if (typeof key !== 'string' || key.length === 0 || key.length > MAX_LENGTH) {
    const came = typeof key === 'string' ? `a string of ${key.length}` : (JSON.stringify(key) ?? String(key))
    throw new InvalidKeyError(
      `a key must be a string of 1 to ${MAX_LENGTH} characters, a number, or an array of these; got ${came}`,
    )
  }
  return HASH_MARK + createHash('sha1').update(key).digest('hex').slice(0, 27)
}
