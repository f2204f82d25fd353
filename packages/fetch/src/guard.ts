import { BlockList, isIP, type LookupFunction } from 'node:net'
import type { buildConnector } from 'undici'
import { RefusedAddressError } from './errors.ts'
import type { Lookup } from './options.ts'

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

/**
 * Wraps a connector of undici, which must use {@link publicLookup}, for the addresses that no lookup sees: those
 * written into the URL and, finally, the one that the socket is connected to.
 */
export function publicPeersOnly(connect: buildConnector.connector): buildConnector.connector {
  return (options, callback) => {
    if (isIP(options.hostname) !== 0 && !isPublicAddress(options.hostname)) {
      queueMicrotask(() => callback(new RefusedAddressError(), null))
      return
    }
    connect(options, (...[error, socket]) => {
      if (error) callback(error, null)
      else if (isPublicAddress(socket.remoteAddress ?? '')) callback(null, socket)
      else {
        socket.destroy()
        callback(new RefusedAddressError(), null)
      }
    })
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
