import { Agent, type AgentOptions, type RequestOptions } from 'node:https'
import { BlockList, isIP, type LookupFunction } from 'node:net'
import type { Duplex } from 'node:stream'
import type { TLSSocket } from 'node:tls'
import { RefusedAddressError } from './errors.ts'
import type { Lookup } from './options.ts'

/**
 * Reads the URL of a job: https, without credentials, on one of the ports. Its text does not show where the host leads:
 * the connection checks that. Problems are added to `problems`.
 */
export function readFreeUrl(text: string, ports: readonly number[], problems: string[]): URL | undefined {
  const url = isClean(text) && URL.canParse(text) ? new URL(text) : undefined
  if (url?.protocol !== 'https:') problems.push('url: expected an https:// URL')
  else if (url.username !== '' || url.password !== '') problems.push('url: expected no user name and no password')
  else if (!ports.includes(Number(url.port || 443))) problems.push(`url: expected port ${ports.join(', ')}`)
  else return url
  return undefined
}

/**
 * The URL parser drops line breaks and tabs and reads backslashes as slashes: such a URL is not what it looks like.
 */
function isClean(text: string): boolean {
  return !/[\s\\\p{Cc}]/u.test(text)
}

/**
 * A lookup for sockets that succeeds only if all addresses of the name are public. The socket connects to the result
 * and does not look the name up again, so a later change of DNS has no effect.
 */
export function publicLookup(resolve: Lookup): LookupFunction {
  return (hostname, options, callback) => {
    resolve(hostname).then(
      (found) => {
        const addresses = found.map(({ address, family }) => ({ address, family }))
        const [first] = addresses
        // One address that is not public makes the others suspect: DNS rebinding mixes them.
        if (!first || !addresses.every(({ address }) => isPublicAddress(address)))
          callback(new RefusedAddressError(), '')
        else if (options.all) callback(null, addresses)
        else callback(null, first.address, first.family)
      },
      (error: NodeJS.ErrnoException) => callback(error, ''),
    )
  }
}

/** Connects to public addresses only. */
export class PublicAgent extends Agent {
  constructor(options: AgentOptions, resolve: Lookup) {
    super({ ...options, lookup: publicLookup(resolve) })
  }

  override createConnection(
    options: RequestOptions,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): Duplex | null | undefined {
    const host = options.host ?? ''
    // No lookup sees an address that is written into the URL.
    if (isIP(host) !== 0 && !isPublicAddress(host)) throw new RefusedAddressError()
    const socket = super.createConnection(options, callback) as TLSSocket
    // Finally, the one that the socket is connected to: before all other listeners, so nothing is sent.
    socket.prependOnceListener('connect', () => {
      if (!isPublicAddress(socket.remoteAddress ?? '')) socket.destroy(new RefusedAddressError())
    })
    return socket
  }
}

/** The parts of IPv4 that are not public: the special-purpose registry of IANA (RFC 6890), and one more. */
const IPV4_REFUSED: readonly (readonly [network: string, prefix: number])[] = [
  ['0.0.0.0', 8], // this network
  ['10.0.0.0', 8], // private
  ['100.64.0.0', 10], // carrier-grade NAT
  ['127.0.0.0', 8], // loopback
  ['168.63.129.16', 32], // Azure's host, reachable only from inside its machines
  ['169.254.0.0', 16], // link-local, metadata services
  ['172.16.0.0', 12], // private
  ['192.0.0.0', 24], // protocol assignments
  ['192.0.2.0', 24], // documentation
  ['192.31.196.0', 24], // AS112
  ['192.52.193.0', 24], // AMT
  ['192.88.99.0', 24], // 6to4 relays
  ['192.168.0.0', 16], // private
  ['192.175.48.0', 24], // AS112
  ['198.18.0.0', 15], // benchmarking
  ['198.51.100.0', 24], // documentation
  ['203.0.113.0', 24], // documentation
  ['224.0.0.0', 4], // multicast
  ['240.0.0.0', 4], // reserved, broadcast
]

/** The parts of 2000::/3 that are not public; the rest of IPv6 is not public either. */
const IPV6_REFUSED: readonly (readonly [network: string, prefix: number])[] = [
  ['2001::', 23], // protocol assignments: Teredo, benchmarking, ORCHID and others
  ['2001:db8::', 32], // documentation
  ['2002::', 16], // 6to4: holds any IPv4 address
  ['2620:4f:8000::', 48], // AS112
  ['3fff::', 20], // documentation
]

const refused = new BlockList()
for (const [network, prefix] of IPV4_REFUSED) refused.addSubnet(network, prefix, 'ipv4')
for (const [network, prefix] of IPV6_REFUSED) refused.addSubnet(network, prefix, 'ipv6')

// Outside it are loopback, link-local, ULA, multicast, IPv4-mapped and IPv4-compatible addresses, and NAT64.
const globalUnicast = new BlockList()
globalUnicast.addSubnet('2000::', 3, 'ipv6')

/**
 * Whether an IP address can be that of a server on the Internet. False for other text, and for an address with a zone.
 */
export function isPublicAddress(address: string): boolean {
  if (address.includes('%')) return false
  const family = isIP(address)
  if (family === 4) return !refused.check(address, 'ipv4')
  return family === 6 && globalUnicast.check(address, 'ipv6') && !refused.check(address, 'ipv6')
}
