import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { egressFetch } from '../../packages/fetch/src/index.ts'
import { profiles } from '../../src/egress/index.ts'
import { findFreePort } from '../../workers/services/free-port.ts'

// HTTP calls that reach no server, by `fetch` and by `egressFetch`: nothing was sent, whatever the job.

async function portOf(connected: (socket: Socket) => void): Promise<number> {
  const server = createServer((socket) => connected(socket.on('error', () => {})))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

const callers = {
  fetch: (url: string) => fetch(url),
  egressFetch: (url: string) => egressFetch({ targets: { here: { baseUrl: url } } })({ target: 'here', path: '/' }),
}

async function found(call: (url: string) => Promise<unknown>, url: string) {
  const threw = await call(url).then(
    () => expect.unreachable('it was answered'),
    (error: unknown) => error,
  )
  return profiles.http.listen({ threw }, { receivedAtMs: 0, latencyMs: 1 }).map(({ feedback }) => feedback)
}

const plain = (socket: Socket) => socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'))

for (const [name, call] of Object.entries(callers)) {
  test.each([
    ['nothing listens', async () => `http://127.0.0.1:${await findFreePort()}`],
    ['its name is unknown', async () => 'http://nowhere.invalid'],
    ['it speaks no TLS', async () => `https://127.0.0.1:${await portOf(plain)}`],
    [
      'it goes away instead of a handshake',
      async () => `https://127.0.0.1:${await portOf((socket) => socket.destroy())}`,
    ],
  ])(`${name}: a server that can not be reached is a destination that is down: %s`, async (_, urlOf) => {
    const [pause, ...more] = await found(call, await urlOf())
    expect(pause).toMatchObject({ kind: 'pause', hard: true, about: 'destination' })
    expect(pause).not.toHaveProperty('mayBeDone')
    expect(more).toEqual([])
  })
}

test('a server that goes away after the request may have done what it was asked', async () => {
  const url = `http://127.0.0.1:${await portOf((socket) => socket.once('data', () => socket.destroy()))}`
  expect(await found(callers.fetch, url)).toMatchObject([{ kind: 'pause', mayBeDone: true }])
})
