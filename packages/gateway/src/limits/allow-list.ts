import { checkCallOptions, encodeKey, InvalidInputError } from 'sluice/internal'
import type { LimitKey } from 'sluice/limits'
import type { HttpRequest } from '../middleware.ts'
import { type AddressOf, callerAddress, rangesOf, type TrustProxy } from './address.ts'

/** Callers that are never limited. */
export interface AllowList {
  /** By address, range ('10.0.0.0/8') or name ('loopback', 'linklocal', 'uniquelocal'). */
  readonly addresses?: readonly string[]
  /** For `addresses`: which proxies' `X-Forwarded-For` is trusted. Default: none. */
  readonly trustProxy?: TrustProxy
  /** By what `key` returns for the request; for an API key that is `hashOfApiKey`. */
  readonly keys?: readonly LimitKey[]
}

export class Allowed {
  readonly #addressOf: AddressOf
  readonly #within: ((address: string) => boolean) | undefined
  readonly #keys: ReadonlySet<string>

  /** @throws InvalidInputError */
  constructor(allow: AllowList) {
    checkCallOptions('allow', allow, ['addresses', 'trustProxy', 'keys'])
    const { addresses, trustProxy, keys = [] } = allow
    if (!Array.isArray(keys)) throw new InvalidInputError(`allow.keys must be a list; got ${JSON.stringify(keys)}`)
    this.#addressOf = callerAddress(trustProxy)
    this.#within = addresses && rangesOf('allow.addresses', addresses)
    this.#keys = new Set(keys.map(encodeKey))
  }

  hasAddressOf(request: HttpRequest): boolean {
    if (!this.#within) return false
    const address = this.#addressOf(request)
    return address !== undefined && this.#within(address)
  }

  /** @throws InvalidKeyError */
  hasKey(keys: readonly LimitKey[]): boolean {
    return this.#keys.size > 0 && keys.some((key) => this.#keys.has(encodeKey(key)))
  }
}
