import { constants, deflateRawSync } from 'node:zlib'

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
export function streamStart(text: string, zips: boolean): string | Buffer {
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
