import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Http2Stream } from 'node:http2'
import type { Socket } from 'node:net'

/** Callbacks for the end of a connection: one listener for all requests in flight on it. */
const waiting = new WeakMap<Socket, Set<() => void>>()

/** Whether the response was sent completely, or the caller has disconnected. */
function isOver(req: IncomingMessage, res: ServerResponse): boolean {
  const stream = http2StreamOf(req)
  return stream ? stream.destroyed : res.writableFinished || res.closed || isGone(req, res)
}

/** Whether the caller disconnected before everything was sent. */
export function isGone(req: IncomingMessage, res: ServerResponse): boolean {
  const stream = http2StreamOf(req)
  if (stream) return stream.destroyed && !res.writableEnded
  return !res.writableFinished && (res.destroyed || req.socket.destroyed)
}

/** Calls back once: when the response was sent, or the caller has disconnected. */
export function whenOver(req: IncomingMessage, res: ServerResponse, callback: () => void): void {
  if (isOver(req, res)) {
    callback()
    return
  }
  const over = () => {
    res.off('finish', over)
    res.off('close', over)
    waiting.get(req.socket)?.delete(over)
    callback()
  }
  res.on('finish', over)
  res.on('close', over)
  // A pipelined response that waits for earlier ones gets no event when its connection closes.
  if (!http2StreamOf(req)) waitingOn(req.socket).add(over)
}

function waitingOn(socket: Socket): Set<() => void> {
  const known = waiting.get(socket)
  if (known) return known
  const made = new Set<() => void>()
  waiting.set(socket, made)
  socket.once('close', () => {
    for (const over of made) over()
  })
  return made
}

/** An HTTP/2 request has a stream of its own, and ends with it. */
export function http2StreamOf(req: IncomingMessage): Http2Stream | undefined {
  return (req as { stream?: Http2Stream }).stream
}
