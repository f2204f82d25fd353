import type { MeterState } from 'sluice'
import { QueueFullError } from 'sluice/internal'
import { BodyTooLargeError, CallerGoneError } from '../body.ts'
import { type Entry, type HttpRequest, type HttpResponse, type Middleware, pathOf } from '../middleware.ts'
import { type Given, ProblemError, problemResponse } from '../responses/problem.ts'
import { refusalResponse } from '../responses/refusal.ts'
import { GatewayQueue } from './gateway-queue.ts'
import { deleteJob, getJob, getMeter, jsonResponse } from './job-routes.ts'
import { admissionPolicyName } from './last-meter.ts'
import { gatewayDescription } from './openapi.ts'
import {
  type GatewayOptions,
  InvalidGatewayOptionError,
  type ResolvedOptions,
  resolveGatewayOptions,
} from './options.ts'
import { postJobs } from './post-jobs.ts'
import { METHODS, type Route, routeOf } from './route.ts'

/** Accepts jobs over HTTP: middleware that handles the paths of its queues, and lets everything else pass. */
export interface Gateway extends Middleware {
  /** Resolves once every queue is connected to Redis. Until then requests get 503. */
  waitUntilReady(): Promise<void>
  /** The meter of a queue, for health checks and shedding. @throws QueueUnavailableError, InvalidGatewayOptionError */
  meter(queueName: string): Promise<MeterState>
  /**
   * Responds to pending waits for results with 202, and to new requests with 503; closes once all admitted requests
   * have a response. Call it when the server no longer listens.
   */
  close(): Promise<void>
}

/**
 * Creates a gateway in front of queues.
 *
 * ```ts
 * const gateway = createGateway({
 *   connection: { host: 'localhost' },
 *   queues: { emails: { shape: { rate: '50/s', capacity: 10_000 }, schema: { type: 'object' } } },
 * })
 * await gateway.waitUntilReady()
 * await app.register(fastifyMiddleware(gateway))
 * ```
 * @throws InvalidGatewayOptionError
 */
export function createGateway(options: GatewayOptions): Gateway {
  return new HttpGateway(resolveGatewayOptions(options))
}

class HttpGateway implements Gateway {
  readonly #options: ResolvedOptions
  readonly #queues: ReadonlyMap<string, GatewayQueue>
  readonly #describe: (allowed?: readonly string[]) => object
  /** By URL in its usual spelling: most requests post jobs, and these need no parsing. */
  readonly #jobsRoutes: ReadonlyMap<string, Route>
  #answering = 0
  #allAnswered: (() => void) | undefined
  #closing: Promise<void> | undefined

  constructor(options: ResolvedOptions) {
    this.#options = options
    this.#describe = gatewayDescription(options)
    this.#queues = new Map(Object.keys(options.queues).map((name) => [name, openedQueue(name, options)]))
    this.#jobsRoutes = new Map(
      [...this.#queues.values()].map(({ jobsPath, name }) => [jobsPath, { kind: 'jobs', queueName: name }]),
    )
  }

  async waitUntilReady(): Promise<void> {
    await Promise.all([...this.#queues.values()].map((queue) => queue.waitUntilReady()))
  }

  async meter(queueName: string): Promise<MeterState> {
    const queue = this.#queues.get(queueName)
    if (!queue) throw new InvalidGatewayOptionError(`the gateway has no queue '${queueName}'`)
    return queue.meter()
  }

  async enter(request: HttpRequest): Promise<Entry> {
    const route = this.#jobsRoutes.get(request.url) ?? routeOf(request.url, this.#options.basePath)
    if (!route) return {}
    this.#answering += 1
    try {
      return { response: await this.#respond(request, route) }
    } finally {
      this.#answering -= 1
      if (this.#answering === 0) this.#allAnswered?.()
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    const queues = [...this.#queues.values()]
    await Promise.all(queues.map((queue) => queue.stopWaiting()))
    await new Promise<void>((resolve) => {
      if (this.#answering === 0) resolve()
      else this.#allAnswered = resolve
    })
    await Promise.all(queues.map((queue) => queue.close()))
  }

  async #respond(request: HttpRequest, route: Route): Promise<HttpResponse> {
    const queue = 'queueName' in route ? this.#queues.get(route.queueName) : undefined
    const instance = queue && pathOf(request.url)
    try {
      return await this.#routed(request, route, queue)
    } catch (error) {
      if (error instanceof ProblemError) return problemResponse({ ...error.terms, instance })
      // The adapter responds to these.
      if (error instanceof BodyTooLargeError || error instanceof CallerGoneError) throw error
      return this.#failure(error, queue, instance)
    }
  }

  /** @throws ProblemError, and what queues throw */
  #routed(request: HttpRequest, route: Route, queue: GatewayQueue | undefined): HttpResponse | Promise<HttpResponse> {
    if (route.kind === 'nothing') throw new ProblemError(404, 'There is nothing here.')
    if (route.kind !== 'openapi' && !queue) throw new ProblemError(404, 'There is no such queue.')
    const methods = METHODS[route.kind]
    if (!methods.includes(request.method)) {
      throw new ProblemError(405, `The methods here are ${methods.join(', ')}.`, {
        headers: { allow: methods.join(', ') },
      })
    }
    const { queues: allowed } = request.identity ?? {}
    if (this.#closing) throw closing()
    if (!queue) return jsonResponse(200, this.#describe(allowed))
    if (allowed && !allowed.includes(queue.name))
      throw new ProblemError(403, 'This token gives no access to this queue.')
    switch (route.kind) {
      case 'jobs':
        return postJobs(request, queue)
      case 'job':
        return (request.method === 'DELETE' ? deleteJob : getJob)(queue, route.id, request.identity)
      default:
        return getMeter(queue)
    }
  }

  #refusal(error: unknown, queue: GatewayQueue, instance: string | undefined): HttpResponse | undefined {
    const make = (given?: Given) =>
      refusalResponse(
        error,
        {
          instance,
          policyName: admissionPolicyName(queue.name),
          capacity: queue.meterForFields.capacity,
          clockMs: queue.meterForFields.clockMs,
          forms: this.#options.headers,
        },
        given,
      )
    return error instanceof QueueFullError ? queue.fullResponses.of(error, instance, make) : make()
  }

  #failure(error: unknown, queue: GatewayQueue | undefined, instance: string | undefined): HttpResponse {
    const refusal = queue && this.#refusal(error, queue, instance)
    if (refusal) return refusal
    this.#options.onError(error instanceof Error ? error : new Error(String(error)), queue?.name)
    return problemResponse({ status: 500, kind: 'about:blank', detail: 'An internal error occurred.', instance })
  }
}

function closing(): ProblemError {
  const kind = 'temporary-reduced-capacity'
  return new ProblemError(503, 'This process is shutting down; send the request again.', { kind })
}

/** @throws InvalidGatewayOptionError */
function openedQueue(name: string, options: ResolvedOptions): GatewayQueue {
  try {
    return new GatewayQueue(name, options)
  } catch (error) {
    const field = error instanceof InvalidGatewayOptionError ? 'shape' : 'schema'
    throw new InvalidGatewayOptionError(`queues.${name}.${field}: ${(error as Error).message}`)
  }
}
