import type { IncomingMessage, ServerResponse } from 'node:http'
import { checkMaxBodyBytes, DEFAULT_MAX_BODY_BYTES } from '../body.ts'
import type { Entry, HttpResponse, Middleware } from '../middleware.ts'
import { type AdapterOptions, enter } from './enter.ts'
import { isGone, whenOver } from './node-close.ts'
import { NodeRequest } from './node-request.ts'
import { joined } from './response-headers.ts'

export type ConnectMiddleware = (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => void

/**
 * Middleware before the routes of Express, Connect, or a server of `node:http`. Put it before body parsers.
 *
 * ```ts
 * const guard = connectMiddleware(middleware)
 * app.use('/api', guard)
 * createServer((req, res) => guard(req, res, (error) => void (error ? res.writeHead(500).end() : res.end('found'))))
 * ```
 * Errors that the middleware throws go to `next`.
 * @throws InvalidInputError
 */
export function connectMiddleware(middleware: Middleware, options: AdapterOptions = {}): ConnectMiddleware {
  const maxBodyBytes = checkMaxBodyBytes(options.maxBodyBytes ?? DEFAULT_MAX_BODY_BYTES)
  return (req, res, next) => {
    const url = (req as { originalUrl?: string }).originalUrl ?? req.url ?? '/'
    enter(middleware, NodeRequest.of(req, res, req, url, maxBodyBytes))
      .then((entry) => passes(req, res, entry))
      .then((passed) => {
        if (passed) next()
      }, next)
  }
}

/** Sends the middleware's response, if there is one. @returns whether the request goes on to the routes */
function passes(req: IncomingMessage, res: ServerResponse, entry: Entry): boolean {
  // A timeout that ran out before the middleware may have sent a response already.
  if (entry.response && !res.headersSent) send(res, entry.response)
  if (entry.response) return false
  if (entry.leave) whenOver(req, res, entry.leave)
  // A disconnected caller needs no response, and what it held was given back.
  if (res.headersSent || isGone(req, res)) return false
  for (const [name, value] of Object.entries(entry.headers ?? {})) add(res, name, value)
  return true
}

function send(res: ServerResponse, { status, headers, body }: HttpResponse): void {
  res.statusCode = status
  for (const [name, value] of Object.entries(headers)) add(res, name, value)
  res.end(body)
}

function add(res: ServerResponse, name: string, value: string): void {
  res.setHeader(name, joined(name, res.getHeader(name)?.toString(), value))
}
