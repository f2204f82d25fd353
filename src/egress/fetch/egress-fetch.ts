import type { Agent } from 'undici'
import { SluiceError } from '../../errors.ts'
import { createSecretMask } from '../../secret-mask.ts'
import { openClients } from './client.ts'
import { HttpResponseError, RequestFailedError, RequestTimeoutError } from './errors.ts'
import { type EgressFetchOptions, type FetchSettings, readOptions } from './options.ts'
import { type CheckedRequest, checkRequest, type EgressRequest, type RequestingJob } from './request.ts'
import { type KeptBody, keptBody, keptHeaders, readBody } from './response.ts'
import { withTimeLimit } from './time-limit.ts'

/** An answer with a status of 2xx. */
export interface EgressAnswer extends KeptBody {
  readonly status: number
  /** The chosen ones, with names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** From the start of the attempt to the end of the body. */
  readonly durationMs: number
}

export interface EgressCall {
  /** The job that asks; its effect id becomes the idempotency key of what is no GET or HEAD. */
  readonly job?: RequestingJob | undefined
  /** Gives up the attempt. */
  readonly signal?: AbortSignal | undefined
}

/** Sends one request, once. */
export interface EgressFetch {
  /**
   * @throws HttpResponseError for an answer that is not 2xx
   * @throws InvalidRequestError for a request that can not be sent (RefusedAddressError: its host is not public)
   * @throws RequestTimeoutError, RequestFailedError where no complete answer came
   */
  (request: EgressRequest, call?: EgressCall): Promise<EgressAnswer>
  /** Lets running requests finish and closes the connections. */
  close(): Promise<void>
}

/**
 * Builds a function that sends requests to configured targets, and to URLs where they are allowed: one attempt each,
 * without retries and redirects, so that every attempt is one that the meter knows. Time and size of an answer are
 * bounded. Secrets of targets are sent to them and stand in no answer and no error.
 *
 * @throws InvalidFetchOptionsError naming everything that is wrong
 */
export function egressFetch(options: EgressFetchOptions): EgressFetch {
  const settings = readOptions(options)
  const { targets, urls } = openClients(settings)
  const send = async (request: EgressRequest, { job, signal }: EgressCall = {}): Promise<EgressAnswer> => {
    const checked = checkRequest(settings, request, job)
    const tooLate = () => new RequestTimeoutError(checked.what, settings.timeoutMs)
    return withTimeLimit(settings.timeoutMs, tooLate, signal, (limited) =>
      attempt(checked.free ? urls : targets, checked, settings, limited),
    )
  }
  const close = async () => {
    await Promise.all([targets.close(), urls.close()])
  }
  return Object.assign(send, { close })
}

async function attempt(
  agent: Agent,
  request: CheckedRequest,
  settings: FetchSettings,
  signal: AbortSignal,
): Promise<EgressAnswer> {
  const startMs = performance.now()
  const { statusCode, headers, ...kept } = await exchange(agent, request, settings, signal).catch((error: unknown) => {
    throw error instanceof SluiceError || signal.aborted ? error : failure(request, error)
  })
  if (statusCode >= 200 && statusCode < 300) {
    return { status: statusCode, headers, ...kept, durationMs: Math.round(performance.now() - startMs) }
  }
  const { what, method, url } = request
  throw new HttpResponseError(what, { statusCode, headers, body: kept.body, url: url.origin + url.pathname, method })
}

async function exchange(
  agent: Agent,
  { url, method, headers, body, secrets }: CheckedRequest,
  { maxResponseBytes, maxBodyChars }: FetchSettings,
  signal: AbortSignal,
) {
  const path = `${url.pathname}${url.search}`
  const response = await agent.request({
    ...{ origin: url.origin, path, method, signal },
    ...{ headers: { ...headers }, body: body ?? null },
  })
  const read = await readBody(response.body, maxResponseBytes)
  const mask = createSecretMask(secrets)
  const kept = keptHeaders(response.headers)
  return {
    statusCode: response.statusCode,
    headers: Object.fromEntries(Object.entries(kept).map(([name, value]) => [name, mask(value)])),
    ...keptBody(read, kept['content-type'] ?? '', maxBodyChars, mask),
  }
}

/** Without a cause: it can hold bytes of the answer, and those a secret. */
function failure({ what }: CheckedRequest, error: unknown): RequestFailedError {
  const { code = '', message = String(error) } = error as NodeJS.ErrnoException
  // Where several addresses were tried there is an error of each, and no message of all.
  const reason = error instanceof AggregateError ? error.errors.map((one: Error) => one.message).join(', ') : message
  return new RequestFailedError(what, reason, code)
}
