import type { IncomingMessage } from 'node:http'
import http from 'node:http'
import https from 'node:https'
import type { Readable } from 'node:stream'
import { createSecretMask, SluiceError } from 'sluice/internal'
import { HttpResponseError, RequestFailedError, RequestTimeoutError } from './errors.ts'
import { PublicAgent } from './guard.ts'
import { type EgressFetchOptions, type FetchSettings, readOptions } from './options.ts'
import { type CheckedRequest, checkRequest, type EgressRequest, type RequestingJob } from './request.ts'

/** How long to wait for the body of a refusal, ms: its status and header fields already say what to do. */
const REFUSAL_BODY_MS = 1000

/** An answer with a status of 2xx. */
export interface EgressAnswer extends KeptBody {
  readonly status: number
  /** The kept ones, with names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** From the start of the attempt to the end of the body. */
  readonly durationMs: number
}

export interface EgressCall {
  /** The job that makes the request; its effect id is the idempotency key, except for GET and HEAD. */
  readonly job?: RequestingJob | undefined
  /** Aborts the attempt. */
  readonly signal?: AbortSignal | undefined
}

/** Sends one request, once. */
export interface EgressFetch {
  /**
   * @throws HttpResponseError for an answer that is not 2xx
   * @throws InvalidRequestError for a request that cannot be sent (RefusedAddressError: its host is not public)
   * @throws RequestTimeoutError, RequestFailedError if no complete answer arrived
   */
  (request: EgressRequest, call?: EgressCall): Promise<EgressAnswer>
  /** Lets running requests finish, then closes the connections. */
  close(): Promise<void>
}

/**
 * Creates a function that sends requests to configured targets, and to URLs if they are allowed: one attempt each,
 * without retries and redirects, so that the meter counts every attempt. Time and size of an answer are bounded.
 * Secrets are sent only to their targets, and appear in no answer and no error.
 *
 * @throws InvalidFetchOptionsError naming everything that is wrong
 */
export function egressFetch(options: EgressFetchOptions): EgressFetch {
  const settings = readOptions(options)
  const agents = {
    http: new http.Agent(KEPT_OPEN),
    https: new https.Agent(KEPT_OPEN),
    free: new PublicAgent(KEPT_OPEN, settings.lookup),
  }
  const running = new Set<Promise<EgressAnswer>>()
  let isClosed = false
  const send = async (request: EgressRequest, { job, signal }: EgressCall = {}): Promise<EgressAnswer> => {
    const checked = checkRequest(settings, request, job)
    if (isClosed) throw new RequestFailedError(checked.what, 'closed', '')
    const agent = checked.free ? agents.free : checked.url.protocol === 'https:' ? agents.https : agents.http
    const limited: Limited = {}
    const tooLate = () => limited.refused ?? new RequestTimeoutError(checked.what, settings.timeoutMs)
    const answered = withTimeLimit(settings.timeoutMs, tooLate, signal, (aborted) =>
      attempt(agent, checked, settings, aborted, limited),
    )
    running.add(answered)
    return answered.finally(() => running.delete(answered))
  }
  const close = async () => {
    isClosed = true
    await Promise.allSettled(running)
    for (const agent of Object.values(agents)) agent.destroy()
  }
  return Object.assign(send, { close })
}

/** Idle connections are closed before most servers do: a request on one that is just being closed would fail. */
const KEPT_OPEN = { keepAlive: true, timeout: 4000 }

/** What a timeout throws once a status other than 2xx has arrived, but its body has not. */
interface Limited {
  refused?: HttpResponseError
}

async function attempt(
  agent: http.Agent,
  request: CheckedRequest,
  { maxResponseBytes, maxBodyChars }: FetchSettings,
  signal: AbortSignal,
  limited: Limited,
): Promise<EgressAnswer> {
  const startMs = performance.now()
  const failed = (error: unknown): never => {
    throw error instanceof SluiceError || signal.aborted ? error : failure(request, error)
  }
  const { what, method, url } = request
  const response = await ask(agent, request, signal).catch(failed)
  const { statusCode = 0 } = response
  const mask = createSecretMask(request.secrets)
  const kept = keptHeaders(response.headers)
  const headers = Object.fromEntries(Object.entries(kept).map(([name, value]) => [name, mask(value)]))
  const bodyOf = (read: ReadBody) => keptBody(read, kept['content-type'] ?? '', maxBodyChars, mask)
  if (statusCode >= 200 && statusCode < 300) {
    const body = bodyOf(await readBody(response, maxResponseBytes).catch(failed))
    return { status: statusCode, headers, ...body, durationMs: Math.round(performance.now() - startMs) }
  }
  const refusal = { statusCode, headers, url: url.origin + url.pathname, method }
  limited.refused = new HttpResponseError(what, { ...refusal, body: '' })
  const { body } = bodyOf(await readBody(response, maxResponseBytes, REFUSAL_BODY_MS))
  // The time is over, or the caller has aborted the attempt.
  if (signal.aborted) throw signal.reason
  throw new HttpResponseError(what, { ...refusal, body })
}

function ask(agent: http.Agent, request: CheckedRequest, signal: AbortSignal): Promise<IncomingMessage> {
  const { url, method, headers, body } = request
  const length = body !== undefined && { 'content-length': Buffer.byteLength(body) }
  const options = { agent, method, headers: { ...headers, ...length }, signal, joinDuplicateHeaders: true }
  return new Promise((resolve, reject) => {
    const client = url.protocol === 'https:' ? https : http
    const asking = client.request(url, options, resolve).on('error', reject)
    asking.on('upgrade', (_, socket) => {
      socket.destroy()
      reject(new Error('it was answered with an upgrade'))
    })
    asking.end(body)
  })
}

/** Without a cause: that could hold bytes of the answer, and a secret among them. */
function failure({ what }: CheckedRequest, error: unknown): RequestFailedError {
  const { code = '', message = String(error) } = error as NodeJS.ErrnoException
  // If several addresses were tried, each has an error, and there is no common message.
  const reason = error instanceof AggregateError ? error.errors.map((one: Error) => one.message).join(', ') : message
  return new RequestFailedError(what, reason, code)
}

/**
 * Runs work with a time limit; `outer` can cancel it too. Both reject immediately, even if the work ignores its signal.
 *
 * @throws what `tooLate` returns when the time is over, or the reason of `outer`.
 */
async function withTimeLimit<T>(
  timeoutMs: number,
  tooLate: () => Error,
  outer: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  outer?.throwIfAborted()
  const controller = new AbortController()
  const { signal } = controller
  const timer = setTimeout(() => controller.abort(tooLate()), timeoutMs)
  const onOuter = () => controller.abort(outer?.reason)
  outer?.addEventListener('abort', onOuter)
  // A lookup cannot be aborted.
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason))
  })
  try {
    return await Promise.race([work(signal), aborted])
  } finally {
    clearTimeout(timer)
    outer?.removeEventListener('abort', onOuter)
  }
}

/** Headers of an answer that are kept: its format, where it points, when to retry, which request it was. */
const KEPT_HEADERS = new Set([
  // A server may compress although it was asked not to: the body is then kept as it arrived.
  ...[
    'content-type',
    'content-encoding',
    'content-language',
    'date',
    'age',
    'last-modified',
    'location',
    'etag',
    'link',
    'retry-after',
  ],
  ...['cf-cache-status', 'x-cache'],
  ...[
    'request-id',
    'x-request-id',
    'x-correlation-id',
    'cf-ray',
    'x-amzn-requestid',
    'x-amz-request-id',
    'x-ms-request-id',
  ],
  ...['x-github-request-id', 'x-trace-id', 'traceparent', 'idempotency-replayed', 'idempotent-replayed'],
  ...['retry-after-ms', 'x-ms-retry-after-ms', 'x-amz-retry-after', 'x-amzn-errortype', 'x-should-retry'],
  ...['stripe-should-retry', 'stripe-rate-limited-reason', 'x-shopify-shop-api-call-limit', 'sforce-limit-info'],
])
/** RateLimit, X-RateLimit-Reset, X-Rate-Limit-Reset, anthropic-ratelimit-requests-reset, x-ms-ratelimit-remaining-… */
const QUOTA_HEADER = /(^|-)rate-?limit(-|$)/

/** The kept headers of an answer; repeated ones are joined by ', '. */
function keptHeaders(headers: Readonly<Record<string, string | string[] | undefined>>): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || !(KEPT_HEADERS.has(name) || QUOTA_HEADER.test(name))) continue
    kept[name] = Array.isArray(value) ? value.join(', ') : value
  }
  return kept
}

/** The beginning of a body. */
interface ReadBody {
  readonly bytes: Buffer
  /** Whether there was more. */
  readonly cut: boolean
}

/**
 * Reads a body up to a number of bytes. If there is more, it is not read, and its connection is closed.
 * @param withinMs read what arrives in this time: a body that breaks off or hangs counts as cut, and nothing is thrown
 */
async function readBody(stream: Readable, maxBytes: number, withinMs?: number): Promise<ReadBody> {
  const chunks: Buffer[] = []
  let size = 0
  const timer = withinMs === undefined ? undefined : setTimeout(() => stream.destroy(), withinMs)
  const read = (cut: boolean) => ({ bytes: Buffer.concat(chunks).subarray(0, maxBytes), cut })
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      chunks.push(chunk)
      size += chunk.length
      if (size > maxBytes) return read(true)
    }
    return read(false)
  } catch (error) {
    if (withinMs === undefined) throw error
    return read(true)
  } finally {
    clearTimeout(timer)
  }
}

/** A body in the form that is kept. */
interface KeptBody {
  /** JSON if it is JSON and complete, else text; '' if there is none. Bytes that are not UTF-8 become U+FFFD. */
  readonly body: unknown
  /** Whether it is only the beginning. */
  readonly bodyTruncated: boolean
}

/**
 * Keeps at most `maxChars` characters of a body.
 *
 * @param mask applied to the whole text first, so that no secret is cut in two; `isCut`: whether the text was cut
 * before.
 */
function keptBody(
  read: ReadBody,
  contentType: string,
  maxChars: number,
  mask: (text: string, isCut: boolean) => string,
): KeptBody {
  const text = mask(new TextDecoder().decode(read.bytes), read.cut)
  const bodyTruncated = read.cut || text.length > maxChars
  const isJson = /^[^;]*[/+]json\s*(;|$)/i.test(contentType)
  return { body: isJson && !bodyTruncated ? parsedOr(text) : text.slice(0, maxChars), bodyTruncated }
}

function parsedOr(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
