import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { afterAll, beforeAll, beforeEach } from 'vitest'

/** A request as the server saw it, its body read. */
export interface SeenRequest {
  readonly method: string
  readonly url: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

/** A real HTTP server on loopback that counts what reaches it. The counts start at 0 for each test. */
export interface TestServer {
  readonly port: number
  readonly url: string
  readonly requests: readonly SeenRequest[]
  /** TCP connections, whatever was sent over them. */
  readonly connections: number
  /** Answers from now on; before that, 200 and `ok`. */
  answer(listener: RequestListener): void
}

/** Runs a server for the tests of a file. */
export function useServer(): TestServer {
  const ok: RequestListener = (_, response) => response.end('ok')
  let listener = ok
  let requests: SeenRequest[] = []
  let connections = 0
  let port = 0
  const sockets = new Set<Socket>()
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const { method = '', url = '', headers } = request
    requests.push({ method, url, headers, body: Buffer.concat(chunks).toString() })
    listener(request, response)
  })
  server.on('connection', (socket) => {
    connections += 1
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  beforeAll(async () => {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    port = (server.address() as AddressInfo).port
  })
  beforeEach(() => {
    listener = ok
    requests = []
    connections = 0
  })
  afterAll(async () => {
    server.close()
    for (const socket of sockets) socket.destroy()
    await once(server, 'close')
  })
  return {
    get port() {
      return port
    },
    get url() {
      return `http://127.0.0.1:${port}`
    },
    get requests() {
      return requests
    },
    get connections() {
      return connections
    },
    answer: (given) => {
      listener = given
    },
  }
}

/** The error that a promise rejects with. */
export async function failureOf(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    (value) => {
      throw new Error(`expected a rejection, got ${JSON.stringify(value)}`)
    },
    (error: Error) => error,
  )
}
