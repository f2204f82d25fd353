import type { EnqueuedJob, GatewayJob, GatewayMeter } from './gateway-answers.ts'
import { GatewayError, type GatewayProblem, GatewayRefusedError, InvalidGatewayCallError } from './gateway-errors.ts'
import type { Fetch } from './options.ts'

export interface GatewayClientOptions {
  /** The URL of the gateway, with its base path: 'https://jobs.example.com/v1'. */
  readonly url: string | URL
  /** Sent as `Authorization: Bearer`. */
  readonly token?: string
  /** Sends the requests. Default: a polite fetch of its own, which retries after refusals. */
  readonly fetch?: Fetch
}

/** What callers may set for a job, if the gateway allows it. */
export interface JobTerms {
  /** ms */
  readonly delay?: number
  /** 1 is the highest. */
  readonly priority?: number
  /** Units of the rate. */
  readonly cost?: number
  readonly mustStartBefore?: Date
  /** What the job uses, by names: `{ model: 'gpt-large' }`. */
  readonly keys?: Readonly<Record<string, string | number>>
}

export interface CallOptions {
  /** Aborts the call. */
  readonly signal?: AbortSignal
}

export interface EnqueueAllOptions extends CallOptions {
  /** 1 to 128 printable ASCII characters. Default: a new UUID, so that a repeated request adds nothing. */
  readonly idempotencyKey?: string
}

export interface EnqueueOptions extends EnqueueAllOptions, JobTerms {
  /** How long to wait for the result, ms, rounded up to seconds. Default: no wait. */
  readonly waitMs?: number
}

export interface NewGatewayJob extends JobTerms {
  readonly data: unknown
}

/** The queues behind a gateway. All methods throw GatewayRefusedError and GatewayError, and what `fetch` throws. */
export interface GatewayClient {
  /** Adds a job, once for each key. */
  enqueue(queue: string, data: unknown, options?: EnqueueOptions): Promise<EnqueuedJob>
  /** Adds jobs, all or none. */
  enqueueAll(queue: string, jobs: readonly NewGatewayJob[], options?: EnqueueAllOptions): Promise<EnqueuedJob[]>
  /** Undefined if there is none. */
  job(queue: string, id: string, options?: CallOptions): Promise<GatewayJob | undefined>
  /**
   * Removes a waiting job, or has the run of one aborted: it fails, unless it completes first.
   * @returns false if there is none
   * @throws GatewayError 409: it has ended
   */
  remove(queue: string, id: string, options?: CallOptions): Promise<boolean>
  meter(queue: string, options?: CallOptions): Promise<GatewayMeter>
}

/** What a String of RFC 9651 can hold. */
const PRINTABLE = /^[\x20-\x7e]{1,128}$/
/** For a refusal without a time, which a gateway never sends. */
const DEFAULT_RETRY_MS = 1000

/** See {@link GatewayClient}. */
export class HttpGatewayClient implements GatewayClient {
  readonly #base: string
  readonly #fetch: Fetch
  readonly #headers: Readonly<Record<string, string>>

  /** @throws InvalidGatewayCallError */
  constructor({ url, token, fetch }: GatewayClientOptions & { readonly fetch: Fetch }) {
    const text = String(url)
    if (!URL.canParse(text)) throw new InvalidGatewayCallError(`url must be the URL of a gateway; got ${text}`)
    const { href } = new URL(text)
    let end = href.length
    while (href[end - 1] === '/') end -= 1
    this.#base = href.slice(0, end)
    this.#fetch = fetch
    this.#headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
  }

  async enqueue(queue: string, data: unknown, options: EnqueueOptions = {}): Promise<EnqueuedJob> {
    const { idempotencyKey, waitMs, signal, ...terms } = options
    const prefer = waitMs === undefined ? {} : { prefer: `wait=${Math.ceil(waitMs / 1000)}` }
    const response = await this.#post(queue, itemOf({ data, ...terms }), idempotencyKey, prefer, signal)
    return { ...((await response.json()) as EnqueuedJob), replayed: isReplayed(response) }
  }

  async enqueueAll(
    queue: string,
    jobs: readonly NewGatewayJob[],
    { idempotencyKey, signal }: EnqueueAllOptions = {},
  ): Promise<EnqueuedJob[]> {
    const response = await this.#post(queue, jobs.map(itemOf), idempotencyKey, {}, signal)
    const body = (await response.json()) as { jobs: EnqueuedJob[] }
    return body.jobs.map((job) => ({ ...job, replayed: isReplayed(response) }))
  }

  async job(queue: string, id: string, { signal }: CallOptions = {}): Promise<GatewayJob | undefined> {
    const response = await this.#send(queue, `jobs/${encodeURIComponent(id)}`, { method: 'GET' }, signal)
    if (response.status === 404) return absent(response)
    await throwIfFailed(response)
    const retryAfter = response.headers.get('retry-after')
    const poll = retryAfter === null ? {} : { pollAfterMs: Number(retryAfter) * 1000 }
    return { ...((await response.json()) as GatewayJob), ...poll }
  }

  async remove(queue: string, id: string, { signal }: CallOptions = {}): Promise<boolean> {
    const response = await this.#send(queue, `jobs/${encodeURIComponent(id)}`, { method: 'DELETE' }, signal)
    if (response.status === 404) {
      await absent(response)
      return false
    }
    await throwIfFailed(response)
    return true
  }

  async meter(queue: string, { signal }: CallOptions = {}): Promise<GatewayMeter> {
    const response = await this.#send(queue, 'meter', { method: 'GET' }, signal)
    await throwIfFailed(response)
    return (await response.json()) as GatewayMeter
  }

  async #post(
    queue: string,
    body: unknown,
    idempotencyKey: string = crypto.randomUUID(),
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal | undefined,
  ): Promise<Response> {
    if (!PRINTABLE.test(idempotencyKey)) {
      throw new InvalidGatewayCallError(
        `idempotencyKey must be 1 to 128 printable ASCII characters; got ${JSON.stringify(idempotencyKey)}`,
      )
    }
    const fields = { 'content-type': 'application/json', 'idempotency-key': sfString(idempotencyKey), ...headers }
    const init = { method: 'POST', body: JSON.stringify(body), headers: fields }
    const response = await this.#send(queue, 'jobs', init, signal)
    await throwIfFailed(response)
    return response
  }

  #send(queue: string, path: string, init: RequestInit, signal: AbortSignal | undefined): Promise<Response> {
    const headers = { ...(init.headers as Record<string, string>), ...this.#headers }
    const url = `${this.#base}/queues/${encodeURIComponent(queue)}/${path}`
    return this.#fetch(url, { ...init, headers, ...(signal && { signal }) })
  }
}

function itemOf({ data, ...terms }: NewGatewayJob): unknown {
  return { data, ...(Object.keys(terms).length > 0 && { opts: terms }) }
}

/** A String of RFC 9651, section 4.1.6. */
function sfString(text: string): string {
  return `"${text.replaceAll(/["\\]/g, '\\$&')}"`
}

function isReplayed({ headers }: Response): boolean {
  return headers.get('idempotency-replayed') === 'true'
}

/** An unknown queue is a mistake; an unknown job may have been removed. */
async function absent(response: Response): Promise<undefined> {
  const problem = await problemOf(response)
  if (problem.instance === undefined) throw new GatewayError(response.status, problem)
}

async function throwIfFailed(response: Response): Promise<void> {
  if (response.ok) return
  const problem = await problemOf(response)
  if (response.status !== 429 && response.status !== 503) throw new GatewayError(response.status, problem)
  const seconds = Number(response.headers.get('retry-after') ?? Number.NaN)
  const saidMs = Number.isFinite(seconds) ? seconds * 1000 : DEFAULT_RETRY_MS
  throw new GatewayRefusedError(response.status, problem, problem.retryAfterMs ?? saidMs)
}

/** A proxy in between may answer in another format. */
async function problemOf(response: Response): Promise<GatewayProblem & { readonly instance?: string }> {
  try {
    const body: unknown = JSON.parse(await response.text())
    return typeof body === 'object' && body !== null ? body : {}
  } catch {
    return {}
  }
}
