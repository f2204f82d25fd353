import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { RedisAddress } from '../fleet/protocol.ts'

export interface Distance {
  readonly address: RedisAddress
  stop(): void
}

/** Puts a Redis so far away: every byte takes half of the round trip in either direction. */
export async function farAway({ host, port }: RedisAddress, roundTripMs: number): Promise<Distance> {
  const sockets = new Set<Socket>()
  const pass = (from: Socket, to: Socket) => {
    sockets.add(from)
    // Timers of one length fire in their order.
    from.on('data', (bytes) => setTimeout(() => to.write(bytes), roundTripMs / 2))
    from.on('error', () => {})
    from.on('close', () => {
      sockets.delete(from)
      setTimeout(() => to.end(), roundTripMs / 2)
    })
  }
  const server = createServer({ noDelay: true }, (client) => {
    const redis = connect({ host, port, noDelay: true })
    pass(client, redis)
    pass(redis, client)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    address: { host: '127.0.0.1', port: (server.address() as AddressInfo).port },
    stop: () => {
      server.close()
      for (const socket of sockets) socket.destroy()
    },
  }
}
