// http/: limited routes, load shedding and the gateway, and the adapters to frameworks. It must not know programs,
// settings or log lines.

export { connectDoor, type Middleware } from './adapters/connect.ts'
export type { AdapterOptions } from './adapters/enter.ts'
export { type FastifyHook, fastifyDoor, fastifyHook } from './adapters/fastify.ts'
export { type FetchDoorOptions, type FetchInfo, fetchDoor } from './adapters/fetch.ts'
export { inOrder } from './adapters/in-order.ts'
export { onlyFrom } from './auth/only-from.ts'
export { newToken, type TokenEntry } from './auth/token-entry.ts'
export { InvalidTokenFileError, isWorldReadable } from './auth/token-file.ts'
export { type TokenDoor, type TokenReload, type TokensOptions, tokens } from './auth/tokens.ts'
export { BodyTooLargeError, CallerGoneError } from './body.ts'
export type { Answer, Door, Entry, HttpRequest, Identity, Pass } from './door.ts'
export { createGateway, type Gateway } from './gateway/gateway.ts'
export {
  type GatewayConnection,
  type GatewayOptions,
  InvalidGatewayOptionError,
  type JobDefaults,
  type JobOption,
  type QueueRule,
} from './gateway/options.ts'
export { type AddressOf, type AddressOptions, byAddress, callerAddress, type TrustProxy } from './limits/address.ts'
export type { AllowList } from './limits/allow-list.ts'
export type { BurstQueue } from './limits/burst-queue.ts'
export { type ApiKeyOptions, byApiKey, byUser, composeKeys, hashOfApiKey, type KeyOf } from './limits/key-functions.ts'
export { rateLimit } from './limits/rate-limit.ts'
export type { ByLimit, Cost, Limits, OnLimit, RateLimitOptions } from './limits/rate-limit-options.ts'
export {
  type ModeChange,
  type ModeRedis,
  type ModeSetting,
  ModeSwitch,
  type ModeSwitchOptions,
  ModesUnavailableError,
} from './mode-switch.ts'
export type { Policy, PolicyUnit } from './responses/policy.ts'
export { type ProblemKind, type ProblemTerms, problemAnswer } from './responses/problem.ts'
export { type HeaderForm, rateLimitFields } from './responses/rate-limit-fields.ts'
export { answerOf, type RefusedAt } from './responses/refusal.ts'
export { type FleetShedder, type FleetShedderOptions, fleetShedder } from './shedding/fleet-shedder.ts'
export { type ProcessShedder, type ProcessShedderOptions, processShedder } from './shedding/process-shedder.ts'
export type { QueueState, WatchedQueue } from './shedding/queue-watch.ts'
export {
  type RequestsInFlight,
  type RequestsInFlightOptions,
  requestsInFlight,
} from './shedding/requests-in-flight.ts'
export type { ShedControl } from './shedding/shed-level.ts'
export type { ShedCounts } from './shedding/shedder.ts'
export type { ShedderOptions } from './shedding/shedder-options.ts'
export { type Classify, DEFAULT_CLASSES, type TrafficClass } from './shedding/traffic-classes.ts'
