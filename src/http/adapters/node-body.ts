import type { IncomingMessage } from 'node:http'
import { SluiceError } from '../../errors.ts'
import { BodyBytes, CallerGoneError } from '../body.ts'
import { http2StreamOf } from './node-close.ts'

/**
 * Reads the whole body and puts it back, so that code behind the door can read it again. (HTTP/2: it is not put back)
 * @throws BodyTooLargeError, CallerGoneError
 */
export async function readNodeBody(req: IncomingMessage, maxBytes: number): Promise<Uint8Array> {
  const bytes = new BodyBytes(maxBytes, req.headers['content-length'])
  if (req.readableDidRead || req.readableEnded) return readBefore(req, bytes)
  // A body that came with its head ends within this turn; only then is it known whether there is one.
  await undefined
  if (isWhole(req)) {
    pull(req, bytes)
    putBack(req, bytes)
  } else if (!isEmpty(req)) await taken(req, bytes)
  return bytes.joined()
}

/** Whether the whole announced body is buffered, as when a short body came with its head. */
function isWhole(req: IncomingMessage): boolean {
  const { readableLength: length, destroyed, aborted } = req
  return length > 0 && Number(req.headers['content-length']) === length && !destroyed && !aborted && !http2StreamOf(req)
}

/** Takes what is buffered. @throws BodyTooLargeError */
function pull(req: IncomingMessage, bytes: BodyBytes): void {
  for (let part = req.read(); part !== null; part = req.read()) bytes.push(part)
}

/** Call it in the turn of the last read: in the next tick the stream emits its end and accepts nothing more. */
function putBack(req: IncomingMessage, bytes: BodyBytes): void {
  req.unshift(bytes.joined())
}

/** Whether the body is complete and empty. Reading it would emit its end, which is left to the code behind the door. */
function isEmpty(req: IncomingMessage): boolean {
  return req.complete && !brokeOff(req) && req.readableLength === 0
}

/** A stream of HTTP/2 that breaks off also ends. */
function brokeOff(req: IncomingMessage): boolean {
  return req.aborted || http2StreamOf(req)?.closed === true
}

function taken(req: IncomingMessage, bytes: BodyBytes): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (settle: () => void) => {
      req.off('readable', read)
      req.off('end', ended)
      req.off('error', gone)
      req.off('close', gone)
      settle()
    }
    const ended = () => (brokeOff(req) ? gone() : stop(resolve))
    const gone = (cause?: unknown) => stop(() => reject(new CallerGoneError({ cause })))
    const read = () => {
      if (bytes.length === 0 && isEmpty(req)) return ended()
      try {
        pull(req, bytes)
      } catch (error) {
        return stop(() => reject(error))
      }
      if (!req.complete || brokeOff(req)) return
      putBack(req, bytes)
      ended()
    }
    req.on('readable', read)
    req.on('end', ended)
    req.on('error', gone)
    req.on('close', gone)
    if (req.destroyed || brokeOff(req)) gone()
  })
}

/** The bytes kept by a parser before the door, as `express.raw()` does. */
function readBefore(req: IncomingMessage, bytes: BodyBytes): Uint8Array {
  const { body, rawBody } = req as { body?: unknown; rawBody?: unknown }
  const kept = [rawBody, body].find((one) => one instanceof Uint8Array)
  if (kept) bytes.push(kept)
  else if (req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0) {
    throw new SluiceError('the body was read before the door: put the door before what parses bodies')
  }
  return bytes.joined()
}
