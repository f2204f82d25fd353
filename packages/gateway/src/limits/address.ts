import { isIPv4 } from 'node:net'
import proxyAddr from '@fastify/proxy-addr'
import ipaddr from 'ipaddr.js'
import { checkCallOptions, InvalidInputError } from 'sluice/internal'
import type { HttpRequest } from '../middleware.ts'
import type { KeyOf } from './key-functions.ts'

/**
 * Which proxies' `X-Forwarded-For` is trusted: proxies by address, range ('10.0.0.0/8') or name ('loopback',
 * 'linklocal', 'uniquelocal'), or the number of proxies in front of this server.
 */
export type TrustProxy = number | readonly string[]

export interface AddressOptions {
  /** Default: none, and the address is that of the connection. */
  readonly trustProxy?: TrustProxy
  /** How many bits of an IPv6 address identify a caller. Default 64: a subscriber has at least a /64. (RFC 6177) */
  readonly ipv6Prefix?: number
}

/** The address of the caller; undefined if unknown. */
export type AddressOf = (request: HttpRequest) => string | undefined

const DEFAULT_IPV6_PREFIX = 64
/** Some proxies add the port. */
const WITH_PORT = /^(?:\[(?<v6>[^\]]+)\](?::\d+)?|(?<v4>[\d.]+):\d+)$/

/**
 * A key for each address: IPv4 in full, IPv6 by its network. Callers whose address is unknown share a key.
 *
 * ```ts
 * byAddress({ trustProxy: ['loopback', '10.0.0.0/8'], ipv6Prefix: 56 })
 * ```
 * @throws InvalidInputError
 */
export function byAddress(options: AddressOptions = {}): KeyOf {
  checkCallOptions('byAddress', options, ['trustProxy', 'ipv6Prefix'])
  const { trustProxy, ipv6Prefix = DEFAULT_IPV6_PREFIX } = options
  if (!(Number.isInteger(ipv6Prefix) && ipv6Prefix >= 1 && ipv6Prefix <= 128)) {
    throw new InvalidInputError(`ipv6Prefix must be a whole number from 1 to 128; got ${String(ipv6Prefix)}`)
  }
  const addressOf = callerAddress(trustProxy)
  return (request) => {
    const address = addressOf(request)
    return address === undefined || isIPv4(address) ? address : networkOf(address, ipv6Prefix)
  }
}

/**
 * The address of the caller behind trusted proxies: the first one, from the connection on, that is not a trusted
 * proxy's. IPv4 within IPv6 is IPv4.
 * @throws InvalidInputError
 */
export function callerAddress(trustProxy: TrustProxy | undefined): AddressOf {
  if (trustProxy === undefined) return ({ remoteAddress }) => normal(remoteAddress)
  const trusts = trustOf(trustProxy)
  return (request) => {
    const forwarded = request.header('x-forwarded-for')
    // A connection over a Unix socket has no address.
    const incoming = {
      headers: { 'x-forwarded-for': forwarded },
      socket: { remoteAddress: request.remoteAddress ?? '' },
    }
    return normal(proxyAddr.all(incoming as unknown as Parameters<typeof proxyAddr.all>[0], trusts).at(-1))
  }
}

function trustOf(trustProxy: TrustProxy): (address: string, hop: number) => boolean {
  if (typeof trustProxy !== 'number') return rangesOf('trustProxy', trustProxy)
  if (Number.isSafeInteger(trustProxy) && trustProxy >= 0) return (_address, hop) => hop < trustProxy
  throw new InvalidInputError(`trustProxy must be a whole number of proxies >= 0, or a list; got ${trustProxy}`)
}

/** Whether an address is in one of the ranges. @param option its name, for errors @throws InvalidInputError */
export function rangesOf(option: string, ranges: readonly string[]): (address: string) => boolean {
  const expected = `${option} must be a list of addresses, ranges ('10.0.0.0/8'), 'loopback', 'linklocal' or 'uniquelocal'`
  if (!Array.isArray(ranges)) throw new InvalidInputError(`${expected}; got ${JSON.stringify(ranges) ?? ranges}`)
  try {
    const within = proxyAddr.compile([...ranges])
    return (address) => within(address, 0)
  } catch (error) {
    throw new InvalidInputError(`${expected}; got ${JSON.stringify(ranges)}`, { cause: error })
  }
}

function normal(text: string | undefined): string | undefined {
  if (text === undefined || isIPv4(text)) return text
  const { v6, v4 } = WITH_PORT.exec(text)?.groups ?? {}
  const address = v6 ?? v4 ?? text
  return ipaddr.isValid(address) ? ipaddr.process(address).toString() : undefined
}

function networkOf(address: string, prefix: number): string {
  const bytes = ipaddr.parse(address).toByteArray()
  const kept = bytes.map((byte, i) => byte & (0xff00 >> Math.min(8, Math.max(0, prefix - i * 8))))
  return `${ipaddr.fromByteArray(kept)}/${prefix}`
}
