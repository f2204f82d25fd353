// Limited routes, load shedding and the gateway, and the adapters to frameworks. None of it knows the settings or log
// lines of program/.

export type { AdapterOptions } from './adapters/core.ts'
export { type FastifyHook, fastifyHook, fastifyMiddleware } from './adapters/fastify.ts'
export { type FetchInfo, type FetchMiddlewareOptions, fetchMiddleware } from './adapters/fetch.ts'
export { inOrder } from './adapters/in-order.ts'
export { type ConnectMiddleware, connectMiddleware } from './adapters/node.ts'
export { onlyFrom } from './auth/only-from.ts'
export { newToken, type TokenEntry } from './auth/token-entry.ts'
export { InvalidTokenFileError } from './auth/token-file.ts'
export { type TokenMiddleware, type TokenReload, type TokensOptions, tokens } from './auth/tokens.ts'
export { BodyTooLargeError, CallerGoneError } from './body.ts'
export { createGateway, type Gateway } from './jobs/gateway.ts'
export {
  type GatewayConnection,
  type GatewayOptions,
  InvalidGatewayOptionError,
  type JobDefaults,
  type JobOption,
  type NameSource,
  type QueueRule,
} from './jobs/options.ts'
export { type AddressOptions, byAddress, type TrustProxy } from './limits/address.ts'
export type { AllowList } from './limits/allow-list.ts'
export type { BurstQueue } from './limits/burst-queue.ts'
export { type ApiKeyOptions, byApiKey, byUser, composeKeys, hashOfApiKey, type KeyOf } from './limits/key-functions.ts'
export { rateLimit } from './limits/rate-limit.ts'
export type { ByLimit, Cost, Limits, OnLimit, RateLimitOptions } from './limits/rate-limit-options.ts'
export type { Entry, HttpRequest, HttpResponse, Identity, Middleware, Pass } from './middleware.ts'
export {
  type ModeChange,
  type ModeRedis,
  type ModeSetting,
  ModeSwitch,
  type ModeSwitchOptions,
  ModesUnavailableError,
} from './mode-switch.ts'
export type { Policy, PolicyUnit } from './responses/policy.ts'
export { type ProblemKind, type ProblemTerms, problemResponse } from './responses/problem.ts'
export type { HeaderForm } from './responses/rate-limit-fields.ts'
export { type RefusedAt, refusalResponse } from './responses/refusal.ts'
export { type FleetShedderOptions, fleetShedder } from './shedding/fleet-shedder.ts'
export { type ProcessShedderOptions, processShedder } from './shedding/process-shedder.ts'
export type { QueueState, WatchedQueue } from './shedding/queue-watch.ts'
export { type RequestsInFlightOptions, requestsInFlight } from './shedding/requests-in-flight.ts'
export type { ShedControl } from './shedding/shed-level.ts'
export type { ShedCounts, Shedder, ShedderOptions } from './shedding/shedder.ts'
export type { Classify, TrafficClass } from './shedding/traffic-classes.ts'
