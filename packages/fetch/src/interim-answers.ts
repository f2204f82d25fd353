import type { Socket } from 'node:net'

/** 101 answers an upgrade, which is never requested here: undici sees it, and fails the request. */
const INTERIM = /^HTTP\/1\.[01] 1(?!01)\d\d[ \r]/
/** How many bytes of an answer show whether it is interim. */
const START_BYTES = 'HTTP/1.1 100 '.length
const HEAD_END = '\r\n\r\n'
/** A longer head is passed on as it is: undici refuses it. */
const MAX_HEAD_BYTES = 16_384

/**
 * Removes interim answers (1xx) from what a socket reads. A server may send any number of them before its answer,
 * requested or not (RFC 9110, section 15.2); undici closes the connection on 100.
 */
export function withoutInterimAnswers<S extends Socket>(socket: S): S {
  const read = socket.read.bind(socket)
  const write = socket.write.bind(socket)
  /** A request was sent, and its answer has not begun. */
  let awaiting = true
  let held: Buffer = Buffer.alloc(0)
  // undici reads the socket itself, and writes the head of a request as one string.
  socket.write = ((chunk: string | Uint8Array, ...rest: never[]) => {
    if (typeof chunk === 'string' && chunk.slice(0, chunk.indexOf('\r\n')).endsWith(' HTTP/1.1')) awaiting = true
    return write(chunk, ...rest)
  }) as S['write']
  socket.read = (size?: number) => {
    for (;;) {
      const chunk = read(size) as Buffer | null
      if (!awaiting || chunk === null) return chunk
      held = withoutInterims(Buffer.concat([held, chunk]))
      if (isUndecided(held)) continue
      const begun = held
      awaiting = false
      held = Buffer.alloc(0)
      return begun
    }
  }
  return socket
}

function startOf(bytes: Buffer): string {
  return bytes.toString('latin1', 0, START_BYTES)
}

function withoutInterims(bytes: Buffer): Buffer {
  let rest = bytes
  while (INTERIM.test(startOf(rest))) {
    const end = rest.indexOf(HEAD_END)
    if (end < 0) break
    rest = rest.subarray(end + HEAD_END.length)
  }
  return rest
}

/** Whether more bytes are needed to tell what this is. */
function isUndecided(bytes: Buffer): boolean {
  if (bytes.length >= MAX_HEAD_BYTES) return false
  return bytes.length < START_BYTES || INTERIM.test(startOf(bytes))
}
