import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { RequestFailedError } from '../src/index.ts'
import { useFetches } from './fetches.ts'

const open = useFetches()
const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'
const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n'
const PROCESSING = 'HTTP/1.1 102 Processing\r\nx-progress: 1\r\n\r\n'
const HINTS = 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'

/** A server that answers each request with those bytes, in such pieces. @returns its URL, and its connections */
async function serverOf(answer: string, pieceBytes = answer.length): Promise<{ url: string; sockets: Set<Socket> }> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.setNoDelay(true).on('error', () => {})
    socket.on('data', async () => {
      for (let at = 0; at < answer.length; at += pieceBytes) {
        socket.write(answer.slice(at, at + pieceBytes))
        await nextTurn()
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy()
    server.close()
    await once(server, 'close')
  })
  return { url: `http://127.0.0.1:${(server.address() as { port: number }).port}`, sockets }
}

const ANSWERS = [
  ['100', CONTINUE],
  ['102', PROCESSING],
  ['103', HINTS],
  ['several', PROCESSING + CONTINUE + HINTS + CONTINUE],
] as const

test.each(ANSWERS.flatMap(([name, interim]) => [1, 7, 1000].map((bytes) => [name, bytes, interim] as const)))(
  '%s before the answer, in pieces of %i bytes, fails no request, nor the next one on the connection',
  async (_name, bytes, interim) => {
    const { url, sockets } = await serverOf(interim + OK, bytes)
    const fetch = open({ targets: { here: { baseUrl: url } } })
    for (let i = 0; i < 2; i++) {
      expect((await fetch({ target: 'here', method: 'GET' })).body).toBe('ok')
      // The connection is free for the next request a turn after the body has ended.
      for (let turn = 0; turn < 3; turn++) await nextTurn()
    }
    expect(sockets.size).toBe(1)
  },
)

test('a body that begins like an interim answer is a body', async () => {
  const { url } = await serverOf(`HTTP/1.1 200 OK\r\ncontent-length: ${CONTINUE.length}\r\n\r\n${CONTINUE}`, 9)
  const fetch = open({ targets: { here: { baseUrl: url } } })
  expect((await fetch({ target: 'here' })).body).toBe(CONTINUE)
})

test.each([
  [
    'an upgrade that was not asked for',
    'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n',
  ],
  ['an interim answer without an end', `HTTP/1.1 100 Continue\r\nx: ${'a'.repeat(40_000)}`],
])('%s fails it', async (_what, answer) => {
  const { url } = await serverOf(answer)
  const fetch = open({ targets: { here: { baseUrl: url } } })
  await expect(fetch({ target: 'here' })).rejects.toBeInstanceOf(RequestFailedError)
})
