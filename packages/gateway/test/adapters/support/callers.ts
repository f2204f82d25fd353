import { type IncomingMessage, type RequestOptions, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { onTestFinished } from '../../../../../test/support/concurrent.ts'

export interface Said {
  readonly status: number | undefined
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

/** One request by `node:http`, which sends what it is told. @param parts of the body; several go in chunks */
export async function call(url: string, options: RequestOptions = {}, parts: readonly string[] = []): Promise<Said> {
  const res = await new Promise<IncomingMessage>((resolve, reject) => {
    const req = request(url, options, resolve)
    req.on('error', reject)
    for (const part of parts) req.write(part)
    req.end()
  })
  return { status: res.statusCode, headers: res.headers, body: await text(res) }
}

/** A bare connection, closed after the test. */
export async function connected(origin: string): Promise<Socket> {
  const socket = connect(Number(new URL(origin).port), '127.0.0.1')
  onTestFinished(() => void socket.destroy())
  // Broken connections are what these tests are about.
  socket.on('error', () => {})
  await new Promise<void>((resolve) => socket.once('connect', () => resolve()))
  return socket
}

/** Waits until what comes over the connection holds a text. @returns all that came */
export function received(socket: Socket, expected: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let came = ''
    socket.on('data', (data) => {
      came += data
      if (came.includes(expected)) resolve(came)
    })
    socket.on('close', () => reject(new Error(`expected ${JSON.stringify(expected)}; got ${JSON.stringify(came)}`)))
  })
}
