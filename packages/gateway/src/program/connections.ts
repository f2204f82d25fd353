import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** The connections of a server, and the requests on them that are not fully answered. */
export class Connections {
  readonly #server: Server
  readonly #open = new Map<Socket, Map<ServerResponse, IncomingMessage>>()
  readonly #nowMs: () => number
  #lastAnswerMs: number

  constructor(server: Server, nowMs: () => number = () => performance.now()) {
    this.#server = server
    this.#nowMs = nowMs
    this.#lastAnswerMs = nowMs()
    server.on('connection', (socket: Socket) => {
      this.#open.set(socket, new Map())
      socket.once('close', () => this.#open.delete(socket))
    })
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      const { socket } = request
      this.#open.get(socket)?.set(response, request)
      response.once('close', () => {
        this.#open.get(socket)?.delete(response)
        this.#lastAnswerMs = this.#nowMs()
      })
    })
  }

  /** Number of fully received requests that wait for their response. */
  get waiting(): number {
    let count = 0
    for (const requests of this.#open.values()) for (const { complete } of requests.values()) if (complete) count += 1
    return count
  }

  /** When a request last ended here, on the constructor's clock. */
  get lastAnswerMs(): number {
    return this.#lastAnswerMs
  }

  /**
   * If requests on a connection with unreadable input still wait for responses, closes it after the last response.
   * @returns false if none wait
   */
  closeAnswered(socket: Socket): boolean {
    const pending = [...(this.#open.get(socket) ?? [])].filter(
      ([{ headersSent }, { complete }]) => headersSent || complete,
    )
    const last = pending.at(-1)?.[0]
    last?.once('close', () => socket.destroySoon())
    return last !== undefined
  }

  /**
   * Stops listening and resolves when all connections are closed: idle ones at once, others after their response, and
   * those whose request has not fully arrived after `receiveMs`.
   */
  async close(receiveMs: number): Promise<void> {
    // A server that is closing no longer enforces its timeouts.
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    this.#destroyWhere((requests) => requests.length === 0)
    const late = setTimeout(
      () => this.#destroyWhere((requests) => requests.every(({ complete }) => !complete)),
      receiveMs,
    )
    await closed.finally(() => clearTimeout(late))
  }

  #destroyWhere(isUseless: (requests: readonly IncomingMessage[]) => boolean): void {
    for (const [socket, requests] of this.#open) if (isUseless([...requests.values()])) socket.destroy()
  }
}
