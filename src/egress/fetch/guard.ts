import { isIP, type LookupFunction } from 'node:net'
import type { buildConnector } from 'undici'
import { RefusedAddressError } from './errors.ts'
import type { Lookup } from './options.ts'
import { isPublicAddress } from './public-address.ts'

/**
 * A lookup for sockets that succeeds only if all addresses of the name are public. The socket connects to the result
 * and does not look the name up again, so a later change of the name has no effect.
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
