import type { Socket } from 'node:net'
import { type FastifyInstance, type FastifyReply, fastify, LogController } from 'fastify'
import {
  answerClientError,
  Connections,
  checkExposure,
  fastifyMiddleware,
  isWorldReadable,
  onlyFrom,
  problemResponse,
  sendResponse,
} from 'sluice-gateway/internal'
import { type Closers, type Logger, type Runnable, run, type Started } from 'sluice-programs'
import { dashboard, SECURITY_HEADERS } from '../index.ts'
import { type DashboardSettings, dashboardTable, isGuarded } from './settings.ts'

const REQUEST_TIMEOUT_MS = 15_000
const KEEP_ALIVE_TIMEOUT_MS = 72_000
/** How long requests in transit may still take to arrive when the program stops. ms */
const RECEIVE_MS = 1000
/** Ids of jobs may be long. */
const MAX_PARAM_LENGTH = 1024

const dashboardProgram: Runnable<DashboardSettings> = {
  name: 'dashboard',
  settings: dashboardTable,
  about: ['Shows queues and their workers in a browser.'],
  work: 'answers',
  check: async (settings) => checkExposure(dashboardTable, settings),
  start,
}

/**
 * Runs the dashboard until it is stopped.
 * @param given texts by the name of their option, such as `--port`
 * @returns the exit code: 0 stopped on request, 1 could not start or stop, 2 wrong settings.
 */
export function runDashboard(given: Readonly<Record<string, string | undefined>>): Promise<number> {
  return run(dashboardProgram, [], given as NodeJS.ProcessEnv)
}

async function start(settings: DashboardSettings, log: Logger, closers: Closers): Promise<Started> {
  const { host, port, tokenFile, allowActions, showData } = settings
  if (tokenFile !== '' && isWorldReadable(tokenFile)) {
    log.warn({ file: tokenFile }, 'every user of this machine can read the token file: chmod 600')
  }
  const { app, connections } = await openApp(settings, log)
  // The app ends event streams; a connection without a request would delay its close.
  closers.push(async () => void (await Promise.all([app.close(), connections.close(RECEIVE_MS)])))
  await app.listen({ host, port })
  const address = app.server.address()
  const listening = typeof address === 'object' && address ? address.port : port
  const page = `http://${host.includes(':') ? `[${host}]` : host}:${listening}/`
  return { page, facts: { page, host, port: listening, tokens: tokenFile !== '', allowActions, showData } }
}

interface OpenedApp {
  readonly app: FastifyInstance
  readonly connections: Connections
}

async function openApp(settings: DashboardSettings, log: Logger): Promise<OpenedApp> {
  const { redisUrl, readUrl, tokenFile, trustProxy, trustProxyReason } = settings
  const { prefix, allowActions, showData, title, by } = settings
  const app = fastify({
    loggerInstance: log,
    // Request lines would contain the names of jobs.
    logController: new LogController({ disableRequestLogging: true }),
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    trustProxy: trustProxy.length > 0 ? [...trustProxy] : false,
    frameworkErrors: (error, _request, reply) => refuse(reply, error.statusCode ?? 400, `refused: ${error.code}`),
    clientErrorHandler: (error, socket) => answerClientError(error, socket as Socket, connections, SECURITY_HEADERS),
  }) as unknown as FastifyInstance
  const connections = new Connections(app.server)
  app.addHook('onRequest', async (_request, reply) => {
    reply.headers(SECURITY_HEADERS)
  })
  app.setNotFoundHandler((_request, reply) => refuse(reply, 404, 'there is nothing here'))
  if (isGuarded(settings)) {
    log.warn({ trustProxy, reason: trustProxyReason }, 'requests from these proxies count as authenticated')
    await app.register(fastifyMiddleware(onlyFrom(trustProxy)))
  }
  await app.register(
    dashboard({
      connection: { url: redisUrl },
      ...(readUrl !== '' && { readConnection: { url: readUrl } }),
      ...(tokenFile === '' ? { actor: () => by } : { tokens: tokenFile }),
      ...{ prefix, allowActions, showData, title, guardedBefore: isGuarded(settings) },
    }),
  )
  return { app, connections }
}

function refuse(reply: FastifyReply, status: number, detail: string): FastifyReply {
  return sendResponse(reply.headers(SECURITY_HEADERS), problemResponse({ status, kind: 'about:blank', detail }))
}
