import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { RawConnection } from '../../../workers/test/raw-connection.ts'
import { answerClientError } from '../../src/program/client-errors.ts'
import { Connections } from '../../src/program/connections.ts'

/** A server that answers what is no request as the gateway does. @returns a connection to it */
async function connectTo(answer: RequestListener, onError = () => {}): Promise<RawConnection> {
  const server = createServer(answer)
  const connections = new Connections(server)
  server.on('clientError', (error, socket) => {
    answerClientError(error, socket as Socket, connections)
    onError()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  const connection = await RawConnection.open(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  onTestFinished(() => connection.destroy())
  return connection
}

const POST = 'POST / HTTP/1.1\r\nhost: gateway\r\ncontent-length: 0\r\n\r\n'

test('what is no request is answered with 400', async () => {
  const connection = await connectTo((_request, response) => void response.end())
  connection.send('nonsense\r\n\r\n')
  await connection.closed
  expect(connection.received).toMatch(/^HTTP\/1\.1 400 /)
})

test.each([1, 3])('behind %i requests that wait for their answers it gets none: they get theirs', async (requests) => {
  const waiting: (() => void)[] = []
  let hasFailed: () => void = () => {}
  const failed = new Promise<void>((resolve) => {
    hasFailed = resolve
  })
  const connection = await connectTo(
    (_request, response) => waiting.push(() => void response.writeHead(202).end('accepted')),
    hasFailed,
  )
  connection.send(`${POST.repeat(requests)}nonsense\r\n\r\n`)
  await failed
  for (const answer of waiting) answer()
  await connection.closed
  expect(connection.received.match(/HTTP\/1\.1 \d+/g)).toEqual(Array(requests).fill('HTTP/1.1 202'))
})
