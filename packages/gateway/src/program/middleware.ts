import { once } from 'node:events'
import { Redis } from 'ioredis'
import { InvalidInputError } from 'sluice/internal'
import { createLimiter, type Limiter, type LimiterOptions, type LimitRedis } from 'sluice/limits'
import { type Closers, createErrorLog, decidingConnection, type Logger, reasonOf } from 'sluice-programs'
import { isWorldReadable } from '../auth/token-file.ts'
import {
  byAddress,
  fleetShedder,
  type Gateway,
  type HttpRequest,
  inOrder,
  type KeyOf,
  type Middleware,
  ModeSwitch,
  onlyFrom,
  processShedder,
  rateLimit,
  requestsInFlight,
  type ShedderOptions,
  type TokenMiddleware,
  tokens,
  type WatchedQueue,
} from '../index.ts'
import { decoded } from '../jobs/route.ts'
import { callerAddress } from '../limits/address.ts'
import type { GatewayConfig, LimitConfig } from './config-file.ts'
import type { RequestLog } from './request-log.ts'
import type { GatewaySettings } from './settings.ts'

/** As long as its connection waits for a reply, ms. */
const CHECK_TIMEOUT_MS = 1000

export interface Opening {
  readonly settings: GatewaySettings
  readonly log: Logger
  readonly closers: Closers
  /** For limits and modes. */
  readonly redis: Redis
  readonly gateway: Gateway
  readonly requests: RequestLog
}

/**
 * The middleware that a request passes, in this order: authentication, the load of this process, limits, the state of
 * the queue, and the gateway. The cheapest come first.
 * @throws InvalidInputError for invalid limits or shedding options
 */
export async function openMiddleware({
  settings,
  log,
  closers,
  redis,
  gateway,
  requests,
}: Opening): Promise<Middleware> {
  const { config, trustProxy, limitsPrefix: prefix } = settings
  const proxies = trustProxy.length > 0 ? { trustProxy } : {}
  const onError = createErrorLog(log)
  const addressOf = callerAddress(proxies.trustProxy)
  const shedding = {
    key: (request: Parameters<typeof addressOf>[0]) => request.identity?.name ?? addressOf(request),
    modes: new ModeSwitch(redis, { prefix, onError }),
    ...(config.classes && { classes: config.classes }),
  }
  return inOrder([
    ...authentication(settings, log, closers),
    requests.middleware,
    received,
    ...processShedders(config, shedding),
    ...(await rateLimits(config.limits, { redis, prefix }, byAddress(proxies), onError)),
    queueShedders(config, shedding, (name) => ({ name, meter: () => gateway.meter(name) }), onError),
    notedAdmissions(gateway, log),
  ])
}

/** A connection for limits and modes: callers wait for these decisions. */
export async function openRedis(url: string, onError: (error: Error) => void, closers: Closers): Promise<Redis> {
  const redis = new Redis(url, decidingConnection(url))
  redis.on('error', onError)
  closers.push(() => redis.disconnect())
  await once(redis, 'ready')
  return redis
}

/**
 * Rejects when Redis does not answer, or takes no writes: it is a replica, or its memory or its disk is full. The command
 * is a write that writes nothing, as it sets a key only if that exists.
 */
export async function takesWrites(redis: Redis, prefix: string): Promise<void> {
  await redis.set(`${prefix}:absent`, '', 'XX')
}

/** Logs when the admissions to a queue begin to fail, and when one succeeds again. The caller's mistakes do not count. */
function notedAdmissions(gateway: Gateway, log: Logger): Middleware {
  const failing = new Set<string>()
  const note = (queue: string, status: number) => {
    if (status < 300 && failing.delete(queue)) log.info({ queue }, 'admissions succeed again')
    if (status < 500 || failing.has(queue)) return
    failing.add(queue)
    log.error({ queue }, 'admissions fail')
  }
  return {
    enter: async (request) => {
      const entry = await gateway.enter(request)
      const queue = request.method === 'POST' ? queueNameOf(request) : undefined
      if (queue !== undefined && entry.response) note(queue, entry.response.status)
      return entry
    },
  }
}

/** Reads the whole request before any limit counts it, so that slow senders do not take up places. */
const received: Middleware = {
  async enter(request) {
    if (request.method === 'POST') await request.body()
    return {}
  },
}

/** The middleware that authenticates callers. @throws InvalidTokenFileError, InvalidInputError */
function authentication(settings: GatewaySettings, log: Logger, closers: Closers): Middleware[] {
  const { tokenFile, trustProxy, trustProxyReason } = settings
  const stack: Middleware[] = []
  // A reason says that the proxies authenticate callers: then only requests from them are accepted.
  if (trustProxyReason !== '' && trustProxy.length > 0) {
    log.warn({ trustProxy, reason: trustProxyReason }, 'requests from these proxies count as authenticated')
    stack.push(onlyFrom(trustProxy))
  }
  if (tokenFile !== '') stack.push(openTokens(tokenFile, log, closers))
  return stack
}

function openTokens(file: string, log: Logger, closers: Closers): TokenMiddleware {
  const middleware = tokens({
    file,
    onReload: (result) => {
      if ('tokens' in result) log.info({ file, tokens: result.tokens }, 'tokens were read again')
      else log.error({ file, reason: reasonOf(result.error) }, 'token file is wrong: the tokens stay as they were')
    },
  })
  closers.push(() => middleware.close())
  if (isWorldReadable(file)) log.warn({ file }, 'every user of this machine can read the token file: chmod 600')
  const reload = () => void middleware.reload()
  process.on('SIGHUP', reload)
  closers.push(() => void process.off('SIGHUP', reload))
  return middleware
}

/**
 * The limits of a configuration, as middleware. A caller is identified by its token's name, else by its address.
 * @throws InvalidLimitError, InvalidRateError, InvalidInputError; LimitConflictError if another program defines a limit
 * of the same name differently
 */
async function rateLimits(
  limits: readonly LimitConfig[],
  { redis, prefix }: { readonly redis: LimitRedis; readonly prefix: string },
  address: KeyOf,
  onFailure: (error: Error) => void,
): Promise<Middleware[]> {
  const keys: Readonly<Record<LimitConfig['per'], KeyOf | Record<string, never>>> = {
    caller: (request) => request.identity?.name ?? address(request),
    address,
    all: {},
  }
  return Promise.all(
    limits.map(async ({ per, tiers = {}, rate, burst, concurrency, ...common }) => {
      const optionsOf = (fields: object) => ({ ...common, ...fields, prefix, onFailure }) as LimiterOptions
      const byTier: [string, LimiterOptions][] = [
        ['default', optionsOf({ rate, burst, concurrency })],
        ...Object.entries(tiers).map(([tier, terms]): [string, LimiterOptions] => [
          tier,
          optionsOf({ ...terms, name: `${common.name}.${tier}` }),
        ]),
      ]
      await Promise.all(byTier.map(([, options]) => checkDefinition(redis, options)))
      const limit: Record<string, Limiter> = Object.fromEntries(
        byTier.map(([tier, options]) => [tier, createLimiter(redis, options)]),
      )
      return rateLimit({ limit, key: keys[per] })
    }),
  )
}

/**
 * A limit is defined on first use. Using it here makes the start fail on a conflict, rather than the first request. No
 * caller waits for it, and a process that starts is busy: it takes longer than a decision may.
 */
async function checkDefinition(redis: LimitRedis, options: LimiterOptions): Promise<void> {
  const limiter = createLimiter(redis, { ...options, timeoutMs: CHECK_TIMEOUT_MS })
  try {
    await limiter.peek()
  } catch (error) {
    // A slow Redis must not prevent the start.
    if (error instanceof InvalidInputError) throw error
  }
}

/** Sheds by the load of this process, whatever queue is requested. */
function processShedders({ shedding }: GatewayConfig, common: ShedderOptions): Middleware[] {
  const { maxRequestsInFlight: max, maxLoopUtilisation, mode } = shedding
  const terms = { ...common, ...(mode && { mode }) }
  return [
    ...(maxLoopUtilisation === undefined ? [] : [processShedder({ ...terms, maxLoopUtilisation })]),
    ...(max === undefined ? [] : [requestsInFlight({ ...terms, max })]),
  ]
}

/** Sheds by the state of the requested queue. */
function queueShedders(
  { shedding }: GatewayConfig,
  common: ShedderOptions,
  queueOf: (name: string) => WatchedQueue,
  onError: (error: Error) => void,
): Middleware {
  const shedders = new Map(
    Object.entries(shedding.queues ?? {}).map(([name, terms]) => {
      const given = Object.fromEntries(Object.entries(terms).filter(([, value]) => value !== undefined))
      return [name, fleetShedder({ ...common, ...given, queue: queueOf(name), onError })]
    }),
  )
  return { enter: (request) => shedders.get(queueNameOf(request) ?? '')?.enter(request) ?? {} }
}

function queueNameOf({ url }: HttpRequest): string | undefined {
  return decoded(/^[^?]*?\/queues\/([^/?]+)/.exec(url)?.[1])
}
