import type { ServerResponse } from 'node:http'
import type { Caller } from './access.ts'
import { type EventFrame, streamStart } from './event-frame.ts'
import type { PageTerms } from './fleet-page.ts'

/** A client that leaves its data unread for this many turns in a row is disconnected; it may reconnect. */
const MAX_SKIPPED = 30
/** How soon a browser reconnects. ms */
const RETRY_MS = 2000

/** Who opens a stream. */
export interface Holder {
  /** The name of the token; undefined where callers are not authenticated. */
  readonly token: string | undefined
  readonly address: string
}

export interface StreamTerms {
  readonly holder: Holder
  /** The part of the fleet that the page shows. */
  readonly page: PageTerms
  /** Whether the fleet is sent. */
  readonly fleet: boolean
  /** The queue that is followed. */
  readonly queue: string | undefined
  /** The last change of the queue that the client knows; undefined: only changes from now on are sent. */
  readonly lastId: string | undefined
  /** The current caller; undefined where access has ended. */
  readonly identify: () => Promise<Caller | undefined>
  /** Whether the client takes gzip. */
  readonly zips: boolean
}

/**
 * One client of server-sent events. (HTML, section 9.2) Each event holds the whole state, so a slow client can skip
 * some: at most one turn waits in memory for it.
 */
export class EventStream implements StreamTerms {
  readonly holder: Holder
  readonly page: PageTerms
  readonly fleet: boolean
  readonly queue: string | undefined
  readonly identify: () => Promise<Caller | undefined>
  readonly zips: boolean
  /** The last change of the queue that was sent. */
  lastId: string | undefined
  /** How many of its changes had been read then; undefined before they were read. */
  changes: number | undefined
  readonly #response: ServerResponse
  #skipped = 0

  constructor(response: ServerResponse, { holder, page, fleet, queue, lastId, identify, zips }: StreamTerms) {
    this.#response = response
    this.holder = holder
    this.page = page
    this.fleet = fleet
    this.queue = queue
    this.identify = identify
    this.zips = zips
    this.lastId = lastId
  }

  /** Starts the response. @param headers of every response of the dashboard */
  open(headers: Readonly<Record<string, string>>): void {
    this.#response.writeHead(200, {
      ...headers,
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store, no-transform',
      // Otherwise some proxies buffer events.
      'x-accel-buffering': 'no',
      vary: 'accept-encoding',
      ...(this.zips && { 'content-encoding': 'gzip' }),
    })
    this.#response.write(streamStart(`retry: ${RETRY_MS}\n\n`, this.zips))
  }

  /** Whether the previous data has been read; disconnects a client that reads nothing for long. */
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

  send(frames: readonly EventFrame[]): void {
    // It may have been closed in the meantime.
    if (this.#response.destroyed || this.#response.writableEnded) return
    for (const frame of frames) this.#response.write(frame.bytes(this.zips))
  }

  /** The client may disconnect before the stream begins. */
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
