import { once } from 'node:events'
import { connect, createServer, type LookupFunction, type Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { describe, expect, onTestFinished, test } from 'vitest'
import { RefusedAddressError } from '../src/errors.ts'
import { PublicAgent, publicLookup } from '../src/guard.ts'
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
    const socket = connect({ host: 'rebind.example', port: server.port, lookup: rebinding })
    const [tried] = await once(socket, 'connectionAttempt')
    socket.destroy()
    expect([tried, lookups, server.connections]).toEqual([NOBODY, 1, 0])
  })
})

describe('a connection', () => {
  const agent = new PublicAgent({}, async () => [])
  const loopback: LookupFunction = (_, __, callback) => callback(null, [{ address: '127.0.0.1', family: 4 }])

  /** Connects to a server on loopback. @returns the client's side, and the first that the server sees of it */
  async function connected() {
    const listening = createServer().listen(0, '127.0.0.1')
    onTestFinished(() => void listening.close())
    await once(listening, 'listening')
    const seen = once(listening, 'connection').then(([socket]: Socket[]) =>
      Promise.race([
        once(socket as Socket, 'data').then(() => 'data'),
        once(socket as Socket, 'end').then(() => 'end'),
      ]),
    )
    const { port } = listening.address() as { port: number }
    const socket = agent.createConnection({ host: 'name.example', port, lookup: loopback }) as TLSSocket
    onTestFinished(() => void socket.destroy())
    return { socket, seen }
  }

  test('that ends up at a private address is closed before anything is sent', async () => {
    const { socket, seen } = await connected()
    const [error] = await once(socket, 'error')
    expect(error).toBeInstanceOf(RefusedAddressError)
    expect([socket.destroyed, await seen]).toEqual([true, 'end'])
  })

  test('to a public address is used', async () => {
    const { socket, seen } = await connected()
    Object.defineProperty(socket, 'remoteAddress', { value: '1.1.1.1' })
    expect([await seen, socket.destroyed]).toEqual(['data', false])
  })

  test('to an address written into the URL is refused without being made', () => {
    const lookup = () => expect.unreachable()
    for (const host of ['127.0.0.1', '::1', '::ffff:7f00:1']) {
      expect(() => agent.createConnection({ host, port: server.port, lookup })).toThrow(RefusedAddressError)
    }
    expect(server.connections).toBe(0)
  })
})
