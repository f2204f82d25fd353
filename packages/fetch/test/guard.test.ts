import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { buildConnector } from 'undici'
import { describe, expect, test } from 'vitest'
import { RefusedAddressError } from '../src/errors.ts'
import { publicLookup, publicPeersOnly } from '../src/guard.ts'
import { useServer } from './server.ts'

const server = useServer()
/** Not assigned to anybody: nothing answers there. */
const NOBODY = '2d00::1'

const answering = (...addresses: string[]) =>
  publicLookup(async () => addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })))

function look(lookup: ReturnType<typeof publicLookup>, all: boolean): Promise<unknown> {
  return new Promise((resolve, reject) => {
    lookup('name.example', { all }, (error, address, family) => (error ? reject(error) : resolve([address, family])))
  })
}

describe('a name', () => {
  test('whose addresses are all public is answered with them', async () => {
    const both = answering('1.1.1.1', '2606:4700::1')
    expect(await look(both, false)).toEqual(['1.1.1.1', 4])
    expect(await look(both, true)).toEqual([
      [
        { address: '1.1.1.1', family: 4 },
        { address: '2606:4700::1', family: 6 },
      ],
      undefined,
    ])
  })

  test.each([
    ['private', ['10.0.0.1']],
    ['public first and private second', ['1.1.1.1', '127.0.0.1']],
    ['public first and mapped second', ['2606:4700::1', '::ffff:127.0.0.1']],
    ['nothing', []],
    ['no address at all', ['localhost']],
  ])('that has %s is refused', async (_, addresses) => {
    await expect(look(answering(...addresses), true)).rejects.toThrow(RefusedAddressError)
    await expect(look(answering(...addresses), false)).rejects.toThrow(RefusedAddressError)
  })

  test('that can not be resolved fails as the resolver says', async () => {
    const error = Object.assign(new Error('not found'), { code: 'ENOTFOUND' })
    await expect(
      look(
        publicLookup(() => Promise.reject(error)),
        true,
      ),
    ).rejects.toBe(error)
  })

  test('is resolved once, and the socket connects to the address that was checked', async () => {
    let lookups = 0
    const rebinding = publicLookup(async () => {
      lookups += 1
      return lookups === 1 ? [{ address: NOBODY, family: 6 }] : [{ address: '127.0.0.1', family: 4 }]
    })
    const connector = buildConnector({ lookup: rebinding }) as (...args: Parameters<buildConnector.connector>) => Socket
    const options = { hostname: 'rebind.example', protocol: 'http:', port: `${server.port}` }
    const socket = connector(options, () => undefined)
    const [tried] = await once(socket, 'connectionAttempt')
    socket.destroy()
    expect([tried, lookups, server.connections]).toEqual([NOBODY, 1, 0])
  })
})

describe('a connection', () => {
  const options = { hostname: 'name.example', protocol: 'http:', port: '80' }

  function peerOf(connector: buildConnector.connector, hostname = options.hostname): Promise<unknown> {
    return new Promise((resolve, reject) => {
      publicPeersOnly(connector)({ ...options, hostname }, (error, socket) => (error ? reject(error) : resolve(socket)))
    })
  }

  test('that ends up at a private address is closed before anything is sent', async () => {
    let socket: Socket | undefined
    const elsewhere: buildConnector.connector = (_, callback) => {
      const connecting = connect(server.port, '127.0.0.1', () => callback(null, connecting))
      socket = connecting
    }
    await expect(peerOf(elsewhere)).rejects.toThrow(RefusedAddressError)
    expect(socket?.destroyed).toBe(true)
    expect(socket?.bytesWritten).toBe(0)
  })

  test('to an address written into the URL is refused without being made', async () => {
    const never: buildConnector.connector = () => expect.unreachable()
    for (const hostname of ['127.0.0.1', '::1', '::ffff:7f00:1']) {
      await expect(peerOf(never, hostname)).rejects.toThrow(RefusedAddressError)
    }
  })

  test('to a public address is handed on, and a failure as it came', async () => {
    const socket = { remoteAddress: '1.1.1.1' } as Socket
    expect(await peerOf((_, callback) => callback(null, socket), '1.1.1.1')).toBe(socket)
    const error = new Error('refused')
    await expect(peerOf((_, callback) => callback(error, null))).rejects.toBe(error)
  })
})
