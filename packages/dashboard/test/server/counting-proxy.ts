import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { onTestFinished } from '../../../../test/support/concurrent.ts'

/** A proxy before a Redis that counts round trips: how often a connection asks after it was answered. */
export interface CountingProxy {
  readonly port: number
  roundTrips(): number
}

/** Starts one for one test. */
export async function startCountingProxy(target: {
  readonly host: string
  readonly port: number
}): Promise<CountingProxy> {
  let count = 0
  const sockets = new Set<Socket>()
  const server = createServer((client) => {
    const redis = connect(target)
    let isAnswered = true
    for (const socket of [client, redis]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
    }
    client.on('data', (bytes) => {
      if (isAnswered) count += 1
      isAnswered = false
      redis.write(bytes)
    })
    redis.on('data', (bytes) => {
      isAnswered = true
      client.write(bytes)
    })
    client.on('close', () => redis.destroy())
    redis.on('close', () => client.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy()
    const closed = once(server, 'close')
    server.close()
    await closed
  })
  return { port: (server.address() as AddressInfo).port, roundTrips: () => count }
}
