import { createHistogram } from 'node:perf_hooks'
import autocannon from 'autocannon'

const KEY_HEADER = 'x-api-key'

/** The results of calls to a server. */
export interface Calls {
  readonly perSecond: number
  /** ms */
  readonly p50: number
  readonly p99: number
  /** By status class. */
  readonly ok: number
  readonly refused: number
  readonly other: number
}

export interface CallOptions {
  readonly url: string
  readonly connections: number
  readonly seconds: number
  readonly method: 'GET' | 'POST'
  readonly body?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Whether percentiles are exact to the µs, which costs some CPU per call; default: whole ms. */
  readonly fine?: boolean
  /** The API key of the n-th call, which takes most of the CPU per call; default: the same for all. */
  readonly keyOf?: (call: number) => string
  /** The API key of all calls on the n-th connection. */
  readonly connectionKeyOf?: (connection: number) => string
}

/** Calls a server as fast as it answers, over keep-alive connections. */
export async function callServer({
  url,
  connections,
  seconds,
  method,
  body,
  headers,
  fine = false,
  keyOf,
  connectionKeyOf,
}: CallOptions): Promise<Calls> {
  let calls = 0
  let opened = 0
  const sent = { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers }
  const running = autocannon({
    url,
    connections,
    duration: seconds,
    method,
    ...(body !== undefined && { body }),
    headers: sent,
    ...(connectionKeyOf && {
      setupClient: (client) => client.setHeaders({ ...sent, [KEY_HEADER]: connectionKeyOf(opened++) }),
    }),
    ...(keyOf && {
      requests: [
        {
          setupRequest: (request) => ({ ...request, headers: { ...request.headers, [KEY_HEADER]: keyOf(calls++) } }),
        },
      ],
    }),
  })
  const latencyUs = createHistogram()
  // Its types only declare the promise.
  const responses = running as unknown as autocannon.Instance
  if (fine)
    responses.on('response', (_client, _status, _bytes, ms) => latencyUs.record(Math.max(1, Math.round(ms * 1000))))
  const result = await running
  const { '2xx': ok, '4xx': refused, '5xx': failed, errors, timeouts } = result
  return {
    perSecond: result.requests.total / result.duration,
    p50: fine ? latencyUs.percentile(50) / 1000 : result.latency.p50,
    p99: fine ? latencyUs.percentile(99) / 1000 : result.latency.p99,
    ok,
    refused,
    other: failed + errors + timeouts,
  }
}
