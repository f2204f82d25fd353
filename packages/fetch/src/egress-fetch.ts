import { createSecretMask, SluiceError } from 'sluice/internal'
import { Agent, buildConnector } from 'undici'
import { HttpResponseError, RequestFailedError, RequestTimeoutError } from './errors.ts'
import { publicLookup, publicPeersOnly } from './guard.ts'
import { withoutInterimAnswers } from './interim-answers.ts'
import { type EgressFetchOptions, type FetchSettings, readOptions } from './options.ts'
import { type CheckedRequest, checkRequest, type EgressRequest, type RequestingJob } from './request.ts'
import { type KeptBody, keptBody, keptHeaders, type ReadBody, readBody, readWhatComes } from './response.ts'

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
  const { targets, urls } = openClients(settings)
  const send = async (request: EgressRequest, { job, signal }: EgressCall = {}): Promise<EgressAnswer> => {
    const checked = checkRequest(settings, request, job)
    const limited: Limited = {}
    const tooLate = () => limited.refused ?? new RequestTimeoutError(checked.what, settings.timeoutMs)
    return withTimeLimit(settings.timeoutMs, tooLate, signal, (aborted) =>
      attempt(checked.free ? urls : targets, checked, settings, aborted, limited),
    )
  }
  const close = async () => {
    await Promise.all([targets.close(), urls.close()])
  }
  return Object.assign(send, { close })
}

/** What a timeout throws once a status other than 2xx has arrived, but its body has not. */
interface Limited {
  refused?: HttpResponseError
}

async function attempt(
  agent: Agent,
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
  const { statusCode, body: stream } = response
  const mask = createSecretMask(request.secrets)
  const kept = keptHeaders(response.headers)
  const headers = Object.fromEntries(Object.entries(kept).map(([name, value]) => [name, mask(value)]))
  const bodyOf = (read: ReadBody) => keptBody(read, kept['content-type'] ?? '', maxBodyChars, mask)
  if (statusCode >= 200 && statusCode < 300) {
    const body = bodyOf(await readBody(stream, maxResponseBytes).catch(failed))
    return { status: statusCode, headers, ...body, durationMs: Math.round(performance.now() - startMs) }
  }
  const refusal = { statusCode, headers, url: url.origin + url.pathname, method }
  limited.refused = new HttpResponseError(what, { ...refusal, body: '' })
  const { body } = bodyOf(await readWhatComes(stream, maxResponseBytes, REFUSAL_BODY_MS))
  // The time is over, or the caller has aborted the attempt.
  if (signal.aborted) throw signal.reason
  throw new HttpResponseError(what, { ...refusal, body })
}

function ask(agent: Agent, { url, method, headers, body }: CheckedRequest, signal: AbortSignal) {
  const path = `${url.pathname}${url.search}`
  const sent = { headers: { ...headers }, body: body ?? null }
  return agent.request({ origin: url.origin, path, method, signal, ...sent })
}

/** Without a cause: that could hold bytes of the answer, and a secret among them. */
function failure({ what }: CheckedRequest, error: unknown): RequestFailedError {
  const { code = '', message = String(error) } = error as NodeJS.ErrnoException
  // If several addresses were tried, each has an error, and there is no common message.
  const reason = error instanceof AggregateError ? error.errors.map((one: Error) => one.message).join(', ') : message
  return new RequestFailedError(what, reason, code)
}

/** The connections of one {@link egressFetch}. */
interface Clients {
  /** For targets: the configuration is trusted, wherever it leads. */
  readonly targets: Agent
  /** For URLs of jobs: reaches public addresses only. */
  readonly urls: Agent
}

/** Opens both clients. Neither retries, follows redirects, decompresses bodies or uses the proxy of the environment. */
function openClients({ timeoutMs, lookup }: FetchSettings): Clients {
  // One limit covers the whole attempt; these would be further ones.
  const limits = { headersTimeout: 0, bodyTimeout: 0 }
  const publicOnly = publicPeersOnly(buildConnector({ timeout: timeoutMs, lookup: publicLookup(lookup) }))
  return {
    targets: new Agent({ ...limits, connect: finalAnswersOnly(buildConnector({ timeout: timeoutMs })) }),
    urls: new Agent({ ...limits, connect: finalAnswersOnly(publicOnly) }),
  }
}

function finalAnswersOnly(connect: buildConnector.connector): buildConnector.connector {
  return (options, callback) => {
    connect(options, (...[error, socket]) => {
      if (error) callback(error, null)
      else callback(null, withoutInterimAnswers(socket))
    })
  }
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
  // undici notices an abort only once it is connected.
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
