import { createServer, type ServerResponse } from 'node:http'
import { checkCallOptions, type ListeningServer, listenAt } from 'sluice/internal'
import type { Metrics } from './create-metrics.ts'

export interface MetricsServerOptions {
  readonly metrics: Metrics
  /** Default `127.0.0.1`. */
  readonly host?: string
  /** 0 lets the system choose. Default 9464. */
  readonly port?: number
}

/** Closing it does not close the metrics. */
export type MetricsServer = ListeningServer

/**
 * Serves `GET /metrics`, for Prometheus, and `GET /live`, which answers 200 while the process responds.
 * @throws the system's error where it cannot listen there
 */
export async function startMetricsServer(options: MetricsServerOptions): Promise<MetricsServer> {
  checkCallOptions('startMetricsServer', options, ['metrics', 'host', 'port'])
  const { metrics, host = '127.0.0.1', port = 9464 } = options
  const server = createServer({ requestTimeout: 5000, headersTimeout: 5000 }, ({ method, url = '' }, response) => {
    const path = url.split('?')[0]
    if (method !== 'GET' && method !== 'HEAD') return send(response, 405, 'expected GET /metrics or GET /live\n')
    if (path === '/live') return send(response, 200, 'ok\n')
    if (path !== '/metrics') return send(response, 404, 'expected GET /metrics or GET /live\n')
    metrics.text().then(
      (text) => send(response, 200, text, metrics.contentType),
      // Another metric of the user's registry may fail.
      (error: unknown) => send(response, 500, `${error instanceof Error ? error.message : String(error)}\n`),
    )
  })
  return listenAt(server, port, host)
}

function send(response: ServerResponse, status: number, text: string, type = 'text/plain; charset=utf-8'): void {
  response.writeHead(status, {
    'content-type': type,
    'cache-control': 'no-store',
    ...(status === 405 ? { allow: 'GET, HEAD' } : {}),
  })
  response.end(text)
}
