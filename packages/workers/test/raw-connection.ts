import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

/** A connection on which anything can be sent, and nothing is understood. */
export class RawConnection {
  received = ''
  /** Resolves when it is closed, by whomever. */
  readonly closed: Promise<unknown>
  readonly #socket: Socket

  private constructor(socket: Socket) {
    this.#socket = socket
    this.closed = new Promise((resolve) => socket.once('close', resolve))
    socket.on('data', (chunk) => {
      this.received += chunk
    })
    // An error is followed by `close`.
    socket.on('error', () => {})
  }

  static async open(url: string): Promise<RawConnection> {
    const { hostname, port } = new URL(url)
    const socket = connect({ host: hostname, port: Number(port), noDelay: true })
    await once(socket, 'connect')
    return new RawConnection(socket)
  }

  /** @returns false when more than the buffers hold is on its way */
  send(bytes: string | Uint8Array): boolean {
    return this.#socket.writable && this.#socket.write(bytes)
  }

  /** Resolves when what came is what is waited for; rejects when the connection closes first. */
  until(accept: (received: string) => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      // Many may be waited for one after the other: none leaves a listener behind.
      const look = () => {
        if (!accept(this.received)) return
        this.#socket.off('data', look).off('close', tell)
        resolve()
      }
      const tell = () => {
        look()
        this.#socket.off('data', look)
        reject(new Error(`the connection was closed; came ${JSON.stringify(this.received)}`))
      }
      this.#socket.on('data', look).once('close', tell)
      if (this.#socket.closed) tell()
      else look()
    })
  }

  destroy(): void {
    this.#socket.destroy()
  }
}
