import { setTimeout as delay } from 'node:timers/promises'
import { InvalidInputError } from 'sluice/internal'
import {
  type Closers,
  checkRedis,
  createErrorLog,
  EXIT,
  type Logger,
  type Runnable,
  run,
  SettingsError,
  type Started,
} from 'sluice-programs'
import { createGateway, type Gateway, type GatewayOptions, newToken } from '../index.ts'
import { GatewayHealth } from './health.ts'
import { openMiddleware, openRedis, takesWrites } from './middleware.ts'
import { RequestLog } from './request-log.ts'
import { GatewayServer } from './server.ts'
import { checkExposure, type GatewaySettings, gatewayTable, isLoopback } from './settings.ts'

const gatewayProgram: Runnable<GatewaySettings> = {
  name: 'gateway',
  settings: gatewayTable,
  about: [
    'Accepts jobs over HTTP for bounded queues, and says when to retry if a queue is full.',
    '',
    '--new-token NAME prints a new token, and its entry for TOKEN_FILE.',
  ],
  work: 'requests',
  check: async (settings) => checkExposure(gatewayTable, settings),
  async start(settings, log, closers) {
    const { queueNames } = settings.config
    await checkRedis(settings.redisUrl, { role: 'gateway', prefix: settings.prefix, queueNames })
    try {
      return await start(settings, log, closers)
    } catch (error) {
      if (!(error instanceof InvalidInputError) || error instanceof SettingsError) throw error
      throw new SettingsError(error.message.split('\n').map((problem) => ({ variable: 'CONFIG', problem })))
    }
  },
}

/**
 * Runs the gateway until it is stopped; with `--new-token NAME` creates a token instead.
 * @returns the exit code: 0 stopped on request, 1 could not start or stop, 2 wrong settings or arguments.
 */
export async function runGateway(
  args: readonly string[] = process.argv.slice(2),
  env: NodeJS.ProcessEnv = process.env,
): Promise<number> {
  return args[0] === '--new-token' ? printNewToken(args.slice(1)) : run(gatewayProgram, args, env)
}

async function start(settings: GatewaySettings, log: Logger, closers: Closers): Promise<Started> {
  const { host, config } = settings
  const requests = new RequestLog(log)
  const server = new GatewayServer({
    limits: { ...settings, idleTimeoutMs: idleTimeoutMs(settings) },
    log,
    tellsReasons: isLoopback(host),
    onAnswer: (request, reply) => requests.write(request, reply),
  })
  let accepting = true
  const gateway = await openGateway(settings, log, closers)
  const redis = await openRedis(settings.redisUrl, createErrorLog(log), closers)
  const health = new GatewayHealth({
    askRedis: () => takesWrites(redis, settings.prefix),
    waiting: () => server.connections.waiting,
    lastAnswerMs: () => server.connections.lastAnswerMs,
    accepting: () => accepting,
    stallTimeoutMs: settings.stallTimeoutMs,
  })
  const middleware = await openMiddleware({ settings, log, closers, redis, gateway, requests })
  const port = await server.listen(middleware, health, host, settings.port)
  closers.push(async () => {
    accepting = false
    server.leave()
    await delay(settings.drainMs)
    // The gateway tells callers that wait for a result to poll instead; otherwise the server would wait with them.
    await Promise.all([server.close(), gateway.close()])
  })
  return { facts: { host, port, queues: config.queueNames, tokens: settings.tokenFile !== '' } }
}

/** While a caller waits for a result (`Prefer: wait`), its connection is silent. */
function idleTimeoutMs({ requestTimeoutMs, keepAliveTimeoutMs, config }: GatewaySettings): number {
  return Math.max(requestTimeoutMs, keepAliveTimeoutMs, config.maxWaitMs) + SILENCE_MS
}

const SILENCE_MS = 5000

const NAME = /^[A-Za-z0-9][\w.@-]{0,63}$/

/** Creates a token: prints it, and its entry for a token file. @returns the exit code */
function printNewToken(args: readonly string[]): number {
  const [name, ...others] = args
  if (name === undefined || !NAME.test(name) || others.length > 0) {
    process.stderr.write('expected --new-token NAME, the name being 1 to 64 letters, digits and _.@-\n')
    return EXIT.usage
  }
  const { token, entry } = newToken(name)
  process.stdout.write(`token, for its holder alone: ${token}\nentry, for TOKEN_FILE: ${JSON.stringify(entry)}\n`)
  return EXIT.stopped
}

/** Opens the gateway of a configuration. @throws InvalidGatewayOptionError; Error if Redis does not answer */
async function openGateway(settings: GatewaySettings, log: Logger, closers: Closers): Promise<Gateway> {
  const { redisUrl, prefix, config } = settings
  const gateway = createGateway({
    ...(config.gateway as unknown as GatewayOptions),
    connection: { url: redisUrl },
    prefix,
    onError: createErrorLog(log),
  })
  closers.push(() => gateway.close())
  await gateway.waitUntilReady()
  return gateway
}
