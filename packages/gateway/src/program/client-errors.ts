import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { problemResponse } from '../responses/problem.ts'
import type { Connections } from './connections.ts'

const DETAILS: Readonly<Record<string, readonly [status: number, detail: string]>> = {
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'the request was not received in time'],
  HPE_HEADER_OVERFLOW: [431, 'the header fields are too long'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, 'the chunk extensions are too long'],
}

/**
 * How long the client may take to read the response. A connection that is closed while data still arrives is reset, and
 * a reset discards the response if the client has not read it yet.
 */
const LINGER_MS = 1000
const closing = new WeakSet<Socket>()

/**
 * Responds to an unreadable request and closes its connection.
 * @param common header fields of every response
 */
export function answerClientError(
  error: Error & { code?: string },
  socket: Socket,
  connections: Connections,
  common: Readonly<Record<string, string>> = {},
): void {
  if (closing.has(socket)) return
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  closing.add(socket)
  // Earlier requests on this connection still wait for responses: the client would mistake this one for theirs.
  if (connections.closeAnswered(socket)) return
  const [status, detail] = DETAILS[error.code ?? ''] ?? [400, 'this is not an HTTP request']
  const { headers, body = '' } = problemResponse({ status, kind: 'about:blank', detail })
  const fields = { ...common, ...headers, 'content-length': String(Buffer.byteLength(body)), connection: 'close' }
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`)
  socket.resume()
  const late = setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('close', () => clearTimeout(late))
}
