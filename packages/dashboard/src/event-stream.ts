import type { ServerResponse } from 'node:http'
import { constants, deflateRawSync } from 'node:zlib'
import type { Caller } from './access.ts'
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

/** How a gzip stream begins: deflate, without a name or a time, of an unknown system. (RFC 1952, section 2.3) */
const GZIP_HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])
/** States of many queues repeat their fields: a tenth of the bytes at a third of the time of the default level. */
const LEVEL = 3

/**
 * A part of a gzip stream that refers to no part before it: it is compressed once for all streams, and a stream may skip
 * any. The flush makes it readable before the stream ends. (RFC 1951, section 3.2.4)
 */
function zippedPart(text: string): Buffer {
  return deflateRawSync(text, { level: LEVEL, finishFlush: constants.Z_SYNC_FLUSH })
}

/** The start of a stream. */
function streamStart(text: string, zips: boolean): string | Buffer {
  return zips ? Buffer.concat([GZIP_HEADER, zippedPart(text)]) : text
}

/** One event. */
export class EventFrame {
  readonly #text: string
  #zipped: Buffer | undefined

  constructor(event: string, data: unknown, id?: string) {
    // JSON has no line breaks, so it is one field.
    this.#text = `${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
  }

  bytes(zips: boolean): string | Buffer {
    if (!zips) return this.#text
    this.#zipped ??= zippedPart(this.#text)
    return this.#zipped
  }
}
