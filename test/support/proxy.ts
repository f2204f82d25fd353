import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { findFreePort } from '../../workers/services/free-port.ts'
import { ProxiedConnection, type ProxyConditions } from './proxied-connection.ts'
import { connectionOptions } from './redis.ts'

/** A TCP proxy in front of a Redis, which breaks connections on demand. */
export interface RedisProxy {
  /** The target's URL with the proxy's address instead of the server's. */
  readonly url: string
  readonly host: string
  readonly port: number
  /** Current number of connections through it. */
  readonly connections: number
  /** Closes every connection at once, on both sides. New ones are accepted. */
  cut(): void
  /**
   * Lets the server execute the next command that `predicate` accepts, and closes the client's connection instead of
   * delivering the reply; replies to earlier commands are delivered. `predicate` gets the command's words as sent, name
   * first. Resolves when the `times`-th reply was dropped (default 1). With `deliverBytes`, this many bytes of the
   * reply still pass: a connection that is cut in the middle of a reply. With `holdOpen` the connection stays open, and
   * nothing more is delivered on it: time to end the client before it learns anything. Connections that subscribe are
   * not affected.
   */
  dropReplyOf(
    predicate: (command: string[]) => boolean,
    times?: number,
    options?: { deliverBytes?: number; holdOpen?: boolean },
  ): Promise<void>
  /** From now on nothing passes, in either direction, and no connection closes: a half-open network. */
  blackhole(): void
  /**
   * Existing connections deliver nothing more, in the given direction or in both, and none of them closes: half-open.
   * New ones work.
   */
  silence(direction?: 'requests' | 'replies'): void
  /** Ends the black hole. Connections that lost bytes in it are closed, except silent ones; the others continue. */
  restore(): void
  /** Adds this many milliseconds to every round trip, half of them each way; 0 removes the delay. */
  latency(roundTripMs: number): void
  /** Delivers what is sent in pieces of at most this many bytes, one each millisecond; 0 delivers it whole again. */
  slice(pieceBytes: number): void
  /** Refuses new connections until `resume`, and closes existing ones: a server that is down. */
  refuse(): Promise<void>
  /** Listens again on the same port after `refuse`. */
  resume(): Promise<void>
  /** New connections go to another server from now on: an address that a failover moves. */
  redirect(targetUrl: string): void
  /** Closes everything and stops listening. May be called twice. */
  stop(): Promise<void>
}

/** Starts a proxy on a free port of 127.0.0.1 in front of the Redis at `targetUrl` (without TLS). */
export async function startProxy(targetUrl: string): Promise<RedisProxy> {
  let target = connectionOptions(targetUrl)
  const conditions: ProxyConditions = { swallow: false, oneWayMs: 0, pieceBytes: 0, rules: [] }
  const connections = new Set<ProxiedConnection>()
  const server = createServer({ noDelay: true }, (socket) => {
    connections.add(new ProxiedConnection(socket, target, conditions, (closed) => connections.delete(closed)))
  })
  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
  }
  const cut = () => {
    for (const connection of connections) connection.destroy()
  }
  const close = async () => {
    cut()
    if (!server.listening) return
    const closed = once(server, 'close')
    server.close()
    await closed
  }
  await listen(await findFreePort())
  const { port } = server.address() as AddressInfo
  return {
    url: proxyUrl(targetUrl, port),
    host: '127.0.0.1',
    port,
    get connections() {
      return connections.size
    },
    cut,
    dropReplyOf: (predicate, times = 1, { deliverBytes = 0, holdOpen = false } = {}) =>
      new Promise<void>((resolve) =>
        conditions.rules.push({ predicate, left: times, pending: 0, deliverBytes, holdOpen, done: resolve }),
      ),
    blackhole: () => {
      conditions.swallow = true
    },
    silence: (direction) => {
      for (const connection of connections) connection.silence(direction)
    },
    restore: () => {
      conditions.swallow = false
      for (const connection of connections) if (connection.broken && !connection.silent) connection.destroy()
    },
    latency: (roundTripMs) => {
      conditions.oneWayMs = roundTripMs / 2
    },
    slice: (pieceBytes) => {
      conditions.pieceBytes = pieceBytes
    },
    refuse: close,
    resume: () => listen(port),
    redirect: (url) => {
      target = connectionOptions(url)
    },
    stop: close,
  }
}

function proxyUrl(targetUrl: string, port: number): string {
  const url = new URL(targetUrl)
  url.hostname = '127.0.0.1'
  url.port = String(port)
  return url.href
}
