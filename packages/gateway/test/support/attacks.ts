import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { RawConnection } from '../../../workers/test/raw-connection.ts'

/** Something that a caller does who means no good. @returns the status of each answer; 0 where none came */
export type Attack = (url: string, times: number) => Promise<number[]>

const TRICKLE_MS = 50
const MAX_BODY = 1_048_576
const DEPTH = 10_000
const HOST = 'host: gateway'
const JSON_TYPE = 'content-type: application/json'

/** Opens connections, sends on each, and reads what came when they are closed, or when each has an answer. */
async function onConnections(url: string, times: number, send: (connection: RawConnection) => Promise<void> | void) {
  const statuses = Array.from({ length: times }, async () => {
    const connection = await RawConnection.open(url)
    const answered = connection.until((text) => text.includes('\r\n\r\n')).catch(() => {})
    await send(connection)
    await answered
    connection.destroy()
    const [, status] = /^HTTP\/1\.1 (\d{3})/.exec(connection.received) ?? []
    return Number(status ?? 0)
  })
  return Promise.all(statuses)
}

/** Sends a byte at a time until the connection is closed. */
async function trickle(connection: RawConnection, text: string): Promise<void> {
  for (const byte of text) {
    if (!connection.send(byte) || connection.received !== '') return
    await sleep(TRICKLE_MS)
  }
}

function post(body: Uint8Array | string, ...fields: string[]): Attack {
  const bytes = Buffer.from(body)
  const head = [`POST /queues/jobs/jobs HTTP/1.1`, HOST, JSON_TYPE, `content-length: ${bytes.length}`, ...fields]
  const request = Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), bytes])
  return (url, times) => onConnections(url, times, (connection) => void connection.send(request))
}

const slowHeaders: Attack = (url, times) =>
  onConnections(url, times, (connection) => trickle(connection, `GET /healthz HTTP/1.1\r\nx: ${'x'.repeat(1000)}`))

const slowBody: Attack = (url, times) =>
  onConnections(url, times, async (connection) => {
    connection.send(`POST /queues/jobs/jobs HTTP/1.1\r\n${HOST}\r\n${JSON_TYPE}\r\ncontent-length: 5000\r\n\r\n`)
    await trickle(connection, `{"data":"${'x'.repeat(1000)}`)
  })

/** More than the limit in pieces, without saying how much. */
const endlessBody: Attack = (url, times) =>
  onConnections(url, times, async (connection) => {
    connection.send(`POST /queues/jobs/jobs HTTP/1.1\r\n${HOST}\r\n${JSON_TYPE}\r\ntransfer-encoding: chunked\r\n\r\n`)
    const piece = `10000\r\n${'x'.repeat(0x10000)}\r\n`
    for (let sent = 0; sent <= MAX_BODY && connection.received === ''; sent += 0x10000) {
      connection.send(piece)
      await new Promise((resolve) => setImmediate(resolve))
    }
  })

/** More than may be in flight: who sends slowly must take nobody's place. */
const SLOW = 250
const AT_ONCE = 25
/**
 * Where the server closes while more of a body is on its way, TCP's reset may overtake the answer; and on a busy machine
 * a body may not have passed the limit when its time is over.
 */
const TOO_LARGE = [413, 0, 408]

/** Each attack, by how many at once, and what they are told, the usual answer first. */
export const ATTACKS: readonly (readonly [name: string, attack: Attack, times: number, answers: readonly number[]])[] =
  [
    ['headers by the byte', slowHeaders, SLOW, [408]],
    ['a body by the byte', slowBody, SLOW, [408]],
    ['10,000 arrays inside each other', post(`{"data":${'['.repeat(DEPTH)}${']'.repeat(DEPTH)}}`), AT_ONCE, [400]],
    ['a gzip bomb', post(gzipSync(Buffer.alloc(10 * MAX_BODY)), 'content-encoding: gzip'), AT_ONCE, [415]],
    ['a body over the limit', post(`"${'x'.repeat(2 * MAX_BODY)}"`), AT_ONCE, TOO_LARGE],
    ['a body without end', endlessBody, AT_ONCE, TOO_LARGE],
    ['a body that is no UTF-8', post(Buffer.from([0x22, 0xc3, 0x28, 0xff, 0x22])), AT_ONCE, [400]],
    [
      'no HTTP at all',
      (url, times) => onConnections(url, times, (one) => void one.send('\x16\x03\x01\x02\r\n\r\n')),
      AT_ONCE,
      [400],
    ],
    [
      'header fields over the limit',
      (url, times) =>
        onConnections(url, times, (one) => void one.send(`GET / HTTP/1.1\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`)),
      AT_ONCE,
      [431],
    ],
    [
      '__proto__ and constructor',
      post('{"data":{"__proto__":{"x":1},"constructor":{"prototype":{"x":1}}}}'),
      AT_ONCE,
      [400],
    ],
  ]

const CONNECTIONS = 8
const PIPELINED = 10

/**
 * Asks so many times, as a proxy would on behalf of so many addresses, as fast as it is answered.
 * @returns how often each status came
 */
export async function askWithKeys(url: string, times: number, keys = times): Promise<Map<string, number>> {
  const counts = new Map<string, number>()
  let next = 0
  const ask = async () => {
    const connection = await RawConnection.open(url)
    while (next < times) {
      const batch = Math.min(PIPELINED, times - next)
      const requests = Array.from({ length: batch }, () => requestOf(next++ % keys))
      connection.received = ''
      connection.send(requests.join(''))
      await connection.until((text) => text.split('HTTP/1.1 ').length > batch && text.endsWith('}'))
      for (const [, status = ''] of connection.received.matchAll(/HTTP\/1\.1 (\d{3})/g)) {
        counts.set(status, (counts.get(status) ?? 0) + 1)
      }
    }
    connection.destroy()
  }
  await Promise.all(Array.from({ length: CONNECTIONS }, ask))
  return counts
}

function requestOf(n: number): string {
  const address = `2001:db8:${(n >>> 16).toString(16)}:${(n & 0xffff).toString(16)}::1`
  return `GET /queues/jobs/jobs/none HTTP/1.1\r\n${HOST}\r\nx-forwarded-for: ${address}\r\n\r\n`
}
