const CRLF = Buffer.from('\r\n')

/** A value of the Redis protocol as received. */
export interface RespFrame {
  raw: Buffer
  /** The first byte, which names the type: `*`, `$`, `+`, `-`, `:`, `>` and so on. */
  type: string
}

/**
 * Splits a stream of the Redis protocol (RESP2 and RESP3) into its top-level values. Feed it chunks as they arrive; a
 * value is returned once it is complete, however it is split across chunks.
 */
export class RespSplitter {
  #chunks: Buffer[] = []
  #size = 0
  /**
   * The next value cannot be complete before this many bytes are there, so that big strings are not copied per chunk.
   */
  #needed = 1

  push(chunk: Buffer): RespFrame[] {
    this.#chunks.push(chunk)
    this.#size += chunk.length
    const frames: RespFrame[] = []
    while (this.#size >= this.#needed) {
      const buffer = this.#join()
      const end = endOfValue(buffer, 0)
      if (end > buffer.length) {
        this.#needed = end
        break
      }
      frames.push({ raw: buffer.subarray(0, end), type: String.fromCharCode(buffer[0]!) })
      this.#keep(buffer.subarray(end))
    }
    return frames
  }

  #join(): Buffer {
    const joined = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks)
    this.#chunks = [joined]
    return joined
  }

  #keep(rest: Buffer): void {
    this.#chunks = rest.length === 0 ? [] : [rest]
    this.#size = rest.length
    this.#needed = 1
  }
}

/** The end of the value at `start`; for an incomplete value, a position beyond the buffer that it reaches at least. */
function endOfValue(buffer: Buffer, start: number): number {
  const lineEnd = buffer.indexOf(CRLF, start)
  if (lineEnd === -1) return buffer.length + 1
  const type = String.fromCharCode(buffer[start]!)
  const next = lineEnd + 2
  if (!'$=!*~>%|'.includes(type)) return next
  const count = Number(buffer.toString('latin1', start + 1, lineEnd))
  if (count < 0) return next
  if ('$=!'.includes(type)) return next + count + 2
  // A map has two values per entry; an attribute comes before the value it belongs to.
  const values = type === '%' ? count * 2 : type === '|' ? count * 2 + 1 : count
  let end = next
  for (let index = 0; index < values && end <= buffer.length; index++) {
    end = end === buffer.length ? end + 1 : endOfValue(buffer, end)
  }
  return end
}

/** The words of a command, or undefined for an inline command or anything that is not an array of bulk strings. */
export function commandWords(raw: Buffer): string[] | undefined {
  if (raw[0] !== 0x2a) return undefined
  const words: string[] = []
  let position = raw.indexOf(CRLF) + 2
  while (position < raw.length) {
    const lineEnd = raw.indexOf(CRLF, position)
    const length = Number(raw.toString('latin1', position + 1, lineEnd))
    words.push(raw.toString('utf8', lineEnd + 2, lineEnd + 2 + length))
    position = lineEnd + 2 + length + 2
  }
  return words
}
