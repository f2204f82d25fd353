import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** The connections of a server, and the requests on them that have no whole answer yet. */
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

  /** Requests that were received to their end and wait for their answer. */
  get waiting(): number {
    let count = 0
    for (const requests of this.#open.values()) for (const { complete } of requests.values()) if (complete) count += 1
    return count
  }

  /** When a request last ended here, on the clock of the constructor. */
  get lastAnswerMs(): number {
    return this.#lastAnswerMs
  }

  /**
   * Closes a connection on which nothing more is understood, if it is owed answers: the last of them is the end of it.
   * @returns false where it is owed none
   */
  closeAnswered(socket: Socket): boolean {
    const owed = [...(this.#open.get(socket) ?? [])].filter(
      ([{ headersSent }, { complete }]) => headersSent || complete,
    )
    const last = owed.at(-1)?.[0]
    last?.once('close', () => socket.destroySoon())
    return last !== undefined
  }

  /**
   * Stops listening and resolves when all connections are closed: at once those that bring no request, the others with
   * their answer, and those whose request is not here after `receiveMs`.
   */
  async close(receiveMs: number): Promise<void> {
    // While it closes, the server looks at its time-outs no longer.
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
