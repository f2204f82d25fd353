import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Middleware } from '../middleware.ts'
import { type AdapterOptions, addFields, maxBodyBytesOf } from './core.ts'
import { enterNode } from './node.ts'

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
  const maxBodyBytes = maxBodyBytesOf(options)
  return (req, res, next) => {
    const url = (req as { originalUrl?: string }).originalUrl ?? req.url ?? '/'
    enterNode(middleware, [req, res], { raw: req, url, maxBodyBytes })
      .then((entry) => {
        // A timeout that ran out before the middleware may have sent a response already.
        if (res.headersSent) return false
        const { response } = entry
        const set = (name: string, value: string) => res.setHeader(name, value)
        addFields({ get: (name) => res.getHeader(name)?.toString(), set }, response ? response.headers : entry.headers)
        if (response) res.writeHead(response.status).end(response.body)
        return !response
      })
      .then((passed) => {
        if (passed) next()
      }, next)
  }
}
