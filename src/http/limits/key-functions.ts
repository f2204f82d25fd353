import { hash } from 'node:crypto'
import { checkCallOptions } from '../../call-options.ts'
import { InvalidInputError } from '../../errors.ts'
import type { LimitKey } from '../../limits/limit-keys.ts'
import type { HttpRequest } from '../door.ts'

/** Whose limit it is that a request counts for. undefined: nobody knows; all of these together have one limit. */
export type KeyOf = (request: HttpRequest) => LimitKey | undefined | Promise<LimitKey | undefined>

/** The key of those of whom nobody knows who they are. No field of a request can hold its first character. */
export const NOBODY = '\0nobody'

export interface ApiKeyOptions {
  /** The field that holds it. Default 'x-api-key'. */
  readonly header?: string
}

/** HTTP's token. (RFC 9110, section 5.6.2) */
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/

/**
 * A key for each API key: its hash, the API key itself is kept nowhere. Nobody has checked it: put a door before that does,
 * or one caller with many invented keys has many limits. Requests without one share a key.
 * @throws InvalidInputError
 */
export function byApiKey(options: ApiKeyOptions = {}): KeyOf {
  checkCallOptions('byApiKey', options, ['header'])
  const { header = 'x-api-key' } = options
  const name = checkFieldName('header', header)
  return (request) => {
    const apiKey = request.header(name)
    return apiKey ? hashOfApiKey(apiKey) : undefined
  }
}

/** What {@link byApiKey} makes of an API key: for the keys of `allow`. */
export function hashOfApiKey(apiKey: string): string {
  return hash('sha256', apiKey, 'base64url')
}

/**
 * A key for each user. Requests without one share a key.
 * @param userOf default: the name that a door before this one found out
 * @throws InvalidInputError
 */
export function byUser(userOf: KeyOf = ({ identity }) => identity?.name): KeyOf {
  return checkFunction('byUser', userOf)
}

/**
 * One key of several: `composeKeys([byUser(), byAddress()])` is a limit for each user at each address. What is not known
 * of a request counts as one value; where nothing is known, it is nobody's.
 * @throws InvalidInputError
 */
export function composeKeys(keys: readonly KeyOf[]): KeyOf {
  if (!Array.isArray(keys) || keys.length === 0) throw new InvalidInputError('composeKeys needs at least one function')
  for (const one of keys) checkFunction('composeKeys', one)
  return async (request) => {
    const parts = await Promise.all(keys.map((keyOf: KeyOf) => keyOf(request)))
    if (parts.every((part) => part === undefined)) return undefined
    return parts.map((part) => (typeof part === 'object' ? JSON.stringify(part) : (part ?? NOBODY)))
  }
}

/** @returns the name as requests have it, in lower case @throws InvalidInputError */
export function checkFieldName(option: string, name: unknown): string {
  if (typeof name === 'string' && FIELD_NAME.test(name)) return name.toLowerCase()
  throw new InvalidInputError(`${option} must be the name of a header field; got ${JSON.stringify(name) ?? name}`)
}

/** @throws InvalidInputError */
export function checkFunction<T>(option: string, value: T): T {
  if (typeof value === 'function') return value
  throw new InvalidInputError(`${option} must be a function; got ${JSON.stringify(value) ?? value}`)
}
