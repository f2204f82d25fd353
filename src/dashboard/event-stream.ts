import type { ServerResponse } from 'node:http'
import type { Caller } from './access.ts'
import type { PageTerms } from './fleet-page.ts'

/** Whoever finds so many turns in a row that what was sent before is unread is let go: he may come again. */
const MAX_SKIPPED = 30
/** How soon a browser comes again. ms */
const RETRY_MS = 2000

export interface StreamTerms {
  /** What it is told of very many queues. */
  readonly page: PageTerms
  /** The queue that is followed besides the fleet. */
  readonly queue: string | undefined
  /** The last change of the queue that is known there; undefined: those from now on are new. */
  readonly lastId: string | undefined
  /** Who reads it, as of now; undefined where he is not let in any more. */
  readonly identify: () => Promise<Caller | undefined>
}

/**
 * One reader of server-sent events. (HTML, section 9.2) Each event tells the whole state, so whoever reads slowly misses
 * some: at most one turn waits in memory for him.
 */
export class EventStream implements StreamTerms {
  readonly page: PageTerms
  readonly queue: string | undefined
  readonly identify: () => Promise<Caller | undefined>
  /** The last change of the queue that was sent. */
  lastId: string | undefined
  readonly #response: ServerResponse
  #skipped = 0

  constructor(response: ServerResponse, { page, queue, lastId, identify }: StreamTerms) {
    this.#response = response
    this.page = page
    this.queue = queue
    this.identify = identify
    this.lastId = lastId
  }

  /** Begins the answer. @param headers of all answers here */
  open(headers: Readonly<Record<string, string>>): void {
    this.#response.writeHead(200, {
      ...headers,
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store, no-transform',
      // Some proxies would else collect events.
      'x-accel-buffering': 'no',
    })
    this.#response.write(`retry: ${RETRY_MS}\n\n`)
  }

  /** Whether what was sent before has been taken; ends the stream of who takes nothing for long. */
  isReady(): boolean {
    if (this.#response.destroyed || this.#response.writableEnded) return false
    if (this.#response.writableLength === 0) {
      this.#skipped = 0
      return true
    }
    this.#skipped += 1
    if (this.#skipped >= MAX_SKIPPED) this.#response.destroy()
    return false
  }

  send(frames: readonly string[]): void {
    // It may have been closed while they were made.
    if (!this.#response.destroyed && !this.#response.writableEnded) this.#response.write(frames.join(''))
  }

  /** Who asked for it may be gone before it begins. */
  get isClosed(): boolean {
    return this.#response.destroyed
  }

  onClose(listener: () => void): void {
    this.#response.once('close', listener)
  }

  end(): void {
    this.#response.end()
  }
}

/** One event. JSON has no line ends, so that it is one field. */
export function eventFrame(event: string, data: unknown, id?: string): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
}
