import type { IncomingMessage, ServerResponse } from 'node:http'
import { checkMaxBodyBytes, DEFAULT_MAX_BODY_BYTES } from '../body.ts'
import type { Answer, Door, Entry } from '../door.ts'
import { joined } from './answer-headers.ts'
import { type AdapterOptions, enter } from './enter.ts'
import { isGone, whenOver } from './node-close.ts'
import { NodeRequest } from './node-request.ts'

export type Middleware = (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => void

/**
 * A door before the routes of Express, Connect, or a server of `node:http`. Put it before body parsers.
 *
 * ```ts
 * const guard = connectDoor(door)
 * app.use('/api', guard)
 * createServer((req, res) => guard(req, res, (error) => void (error ? res.writeHead(500).end() : res.end('found'))))
 * ```
 * Errors that a door throws go to `next`.
 * @throws InvalidInputError
 */
export function connectDoor(door: Door, options: AdapterOptions = {}): Middleware {
  const maxBodyBytes = checkMaxBodyBytes(options.maxBodyBytes ?? DEFAULT_MAX_BODY_BYTES)
  return (req, res, next) => {
    const url = (req as { originalUrl?: string }).originalUrl ?? req.url ?? '/'
    enter(door, NodeRequest.of(req, res, req, url, maxBodyBytes))
      .then((entry) => passes(req, res, entry))
      .then((passed) => {
        if (passed) next()
      }, next)
  }
}

/** Sends the door's answer, if there is one. @returns whether the code behind the door is to answer */
function passes(req: IncomingMessage, res: ServerResponse, entry: Entry): boolean {
  // A time-out before the door may have answered already.
  if (entry.answer && !res.headersSent) send(res, entry.answer)
  if (entry.answer) return false
  if (entry.leave) whenOver(req, res, entry.leave)
  // A caller that has disconnected needs no answer, and what it held was given back.
  if (res.headersSent || isGone(req, res)) return false
  for (const [name, value] of Object.entries(entry.headers ?? {})) add(res, name, value)
  return true
}

function send(res: ServerResponse, { status, headers, body }: Answer): void {
  res.statusCode = status
  for (const [name, value] of Object.entries(headers)) add(res, name, value)
  res.end(body)
}

function add(res: ServerResponse, name: string, value: string): void {
  res.setHeader(name, joined(name, res.getHeader(name)?.toString(), value))
}
