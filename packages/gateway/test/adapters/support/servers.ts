import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import express from 'express'
import Fastify from 'fastify'
import { onTestFinished } from '../../../../../test/support/concurrent.ts'
import type { AdapterOptions } from '../../../src/adapters/core.ts'
import { fastifyMiddleware } from '../../../src/adapters/fastify.ts'
import { fetchMiddleware } from '../../../src/adapters/fetch.ts'
import { connectMiddleware } from '../../../src/adapters/node.ts'
import type { Middleware } from '../../../src/middleware.ts'

/** What stands behind the middleware. @param body what it reads of the request */
export type Behind = (body: string) => string | Readable | Promise<string | Readable>

export const KINDS = ['fastify', 'express', 'node', 'fetch'] as const
export type Kind = (typeof KINDS)[number]

/** A middleware in a real server of each kind, on a port of its own; closed after the test. @returns its origin */
export async function serve(
  kind: Kind,
  middleware: Middleware,
  behind: Behind = () => 'passed',
  options?: AdapterOptions,
): Promise<string> {
  return SERVERS[kind](middleware, behind, options)
}

type Start = (middleware: Middleware, behind: Behind, options?: AdapterOptions) => Promise<string>

const SERVERS: Readonly<Record<Kind, Start>> = {
  async fastify(middleware, behind, options) {
    const app = Fastify({ forceCloseConnections: true })
    await app.register(fastifyMiddleware(middleware, options))
    app.removeAllContentTypeParsers()
    app.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => done(null, body))
    app.all('/*', async (request) => behind((request.body as string | undefined) ?? ''))
    onTestFinished(() => app.close())
    await app.listen({ host: '127.0.0.1', port: 0 })
    return originOf(app.server)
  },
  async express(middleware, behind, options) {
    const app = express()
    app.use(connectMiddleware(middleware, options))
    app.use(express.text({ type: () => true }))
    app.use(async (req, res) => send(res, await behind(typeof req.body === 'string' ? req.body : '')))
    app.use((_error: unknown, _req: unknown, res: express.Response, _next: unknown) => void res.status(500).end())
    return listen(app)
  },
  async node(middleware, behind, options) {
    const guard = connectMiddleware(middleware, options)
    return listen((req, res) => guard(req, res, (error) => void (error ? fail(res) : answer(req, res, behind))))
  },
  async fetch(middleware, behind, options) {
    const guarded = fetchMiddleware(
      middleware,
      async (request) => responseOf(await behind(await request.text())),
      options,
    )
    return listen(fetchRuntime(guarded))
  },
}

/** What runtimes of the Fetch API do: the request, the answer's body as far as it is wanted, and a signal. */
export function fetchRuntime(
  handler: (request: Request, info: { remoteAddress: string | undefined }) => Promise<Response>,
): RequestListener {
  return async (req, res) => {
    const gone = new AbortController()
    res.on('close', () => {
      if (!res.writableFinished) gone.abort()
    })
    try {
      const response = await handler(requestOf(req, gone.signal), { remoteAddress: req.socket.remoteAddress })
      res.writeHead(response.status, Object.fromEntries(response.headers))
      if (!response.body || req.method === 'HEAD') res.end()
      else
        Readable.fromWeb(response.body as import('node:stream/web').ReadableStream)
          .on('error', () => res.destroy())
          .pipe(res)
    } catch {
      fail(res)
    }
  }
}

/** @returns its origin */
export async function listen(listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    return new Promise<void>((resolve) => server.close(() => resolve()))
  })
  return originOf(server)
}

function originOf(server: Pick<Server, 'address'>): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

async function answer(req: IncomingMessage, res: ServerResponse, behind: Behind): Promise<void> {
  try {
    send(res, await behind(await text(req)))
  } catch {
    fail(res)
  }
}

function send(res: ServerResponse, body: string | Readable): void {
  if (typeof body === 'string') res.end(body)
  else body.on('error', () => res.destroy()).pipe(res)
}

function fail(res: ServerResponse): void {
  if (!res.headersSent) res.writeHead(500)
  res.end()
}

function requestOf(req: IncomingMessage, signal: AbortSignal): Request {
  const headers = new Headers()
  for (let i = 0; i < req.rawHeaders.length; i += 2) {
    headers.append(req.rawHeaders[i] as string, req.rawHeaders[i + 1] as string)
  }
  const hasBody = req.method !== 'GET' && req.method !== 'HEAD'
  const body = hasBody ? { body: Readable.toWeb(req) as ReadableStream<Uint8Array>, duplex: 'half' as const } : {}
  return new Request(`http://${req.headers.host}${req.url}`, { method: req.method as string, headers, signal, ...body })
}

function responseOf(body: string | Readable): Response {
  return new Response(typeof body === 'string' ? body : (Readable.toWeb(body) as ReadableStream<Uint8Array>))
}
