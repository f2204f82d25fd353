import type { IncomingMessage, ServerResponse } from 'node:http'
import { checkMaxBodyBytes, DEFAULT_MAX_BODY_BYTES } from '../body.ts'
import type { Answer, Door } from '../door.ts'
import { joined } from './answer-headers.ts'
import { type AdapterOptions, enter } from './enter.ts'
import { isGone, whenOver } from './node-close.ts'
import { NodeRequest } from './node-request.ts'

export type Middleware = (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => void

/**
 * A door before the routes of Express, Connect, or a server of `node:http`. Put it before what parses bodies.
 *
 * ```ts
 * const guard = connectDoor(door)
 * app.use('/api', guard)
 * createServer((req, res) => guard(req, res, (error) => void (error ? res.writeHead(500).end() : res.end('found'))))
 * ```
 * What a door throws goes to `next`.
 * @throws InvalidInputError
 */
export function connectDoor(door: Door, options: AdapterOptions = {}): Middleware {
  const maxBodyBytes = checkMaxBodyBytes(options.maxBodyBytes ?? DEFAULT_MAX_BODY_BYTES)
  return (req, res, next) => {
    const url = (req as { originalUrl?: string }).originalUrl ?? req.url ?? '/'
    enter(door, NodeRequest.of(req, res, req, url, maxBodyBytes)).then((entry) => {
      if (entry.answer) return send(res, entry.answer)
      if (entry.leave) whenOver(req, res, entry.leave)
      // Whoever has gone needs no answer any more, and what he held was given back.
      if (isGone(req, res)) return
      for (const [name, value] of Object.entries(entry.headers ?? {})) add(res, name, value)
      next()
    }, next)
  }
}

function send(res: ServerResponse, { status, headers, body }: Answer): void {
  res.statusCode = status
  for (const [name, value] of Object.entries(headers)) add(res, name, value)
  res.end(body)
}

function add(res: ServerResponse, name: string, value: string): void {
  res.setHeader(name, joined(name, res.getHeader(name)?.toString(), value))
}
