import { hash } from 'node:crypto'
import { checkArgument, checkCallOptions, InvalidInputError } from 'sluice/internal'
import type { LimitKey } from 'sluice/limits'
import type { HttpRequest } from '../middleware.ts'

/** The key that a request counts against. undefined: unknown; all requests with an unknown key share one limit. */
export type KeyOf = (request: HttpRequest) => LimitKey | undefined | Promise<LimitKey | undefined>

/** The key of requests whose key is unknown. No field of a request can hold its first character. */
export const ANONYMOUS = '\0nobody'

export interface ApiKeyOptions {
  /** The header field that holds it. Default 'x-api-key'. */
  readonly header?: string
}

/** HTTP's token. (RFC 9110, section 5.6.2) */
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/

/**
 * A key for each API key: its hash; the API key itself is not stored. The API key is not verified: put
 * middleware that does so before this one, or a caller can get more limits by inventing keys. Requests without one
 * share a key.
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

/** The key that {@link byApiKey} derives from an API key, for the keys of `allow`. */
export function hashOfApiKey(apiKey: string): string {
  checkArgument(typeof apiKey === 'string', 'hashOfApiKey: the key', 'a string', typeof apiKey)
  return hash('sha256', apiKey, 'base64url')
}

/**
 * A key for each user. Requests without a user share a key.
 * @param userOf default: the name of the identity found by earlier middleware
 * @throws InvalidInputError
 */
export function byUser(userOf: KeyOf = ({ identity }) => identity?.name): KeyOf {
  return checkFunction('byUser', userOf)
}

/**
 * Combines several keys into one: `composeKeys([byUser(), byAddress()])` limits each user at each address. An unknown
 * part counts as one value; if all parts are unknown, so is the key.
 * @throws InvalidInputError
 */
export function composeKeys(keys: readonly KeyOf[]): KeyOf {
  if (!Array.isArray(keys) || keys.length === 0) throw new InvalidInputError('composeKeys needs at least one function')
  for (const one of keys) checkFunction('composeKeys', one)
  return async (request) => {
    const parts = await Promise.all(keys.map((keyOf: KeyOf) => keyOf(request)))
    if (parts.every((part) => part === undefined)) return undefined
    return parts.map((part) => (typeof part === 'object' ? JSON.stringify(part) : (part ?? ANONYMOUS)))
  }
}

/** @returns the name in lower case, as requests have it @throws InvalidInputError */
export function checkFieldName(option: string, name: unknown): string {
  if (typeof name === 'string' && FIELD_NAME.test(name)) return name.toLowerCase()
  throw new InvalidInputError(`${option} must be the name of a header field; got ${JSON.stringify(name) ?? name}`)
}

/** @throws InvalidInputError */
export function checkFunction<T>(option: string, value: T): T {
  if (typeof value === 'function') return value
  throw new InvalidInputError(`${option} must be a function; got ${JSON.stringify(value) ?? value}`)
}
