import { createServer, type ServerResponse } from 'node:http'
import { type ListeningServer, listenAt } from 'sluice/internal'
import { INITIAL_LIVENESS, judgeLiveness, type QueueFacts } from './liveness.ts'

export interface HealthOptions {
  readonly host: string
  /** 0 lets the system choose. */
  readonly port: number
  readonly stallTimeoutMs: number
  /** Reads the queue; rejects when Redis does not answer in time. */
  readonly queueFacts: () => Promise<QueueFacts>
  /** When a job last started or finished here, on the clock of `nowMs`. */
  readonly lastProgressMs: () => number
  /** False before the worker runs, and from the moment it is asked to stop. */
  readonly accepting: () => boolean
  /** A monotonic clock in milliseconds. */
  readonly nowMs?: () => number
}

export type HealthServer = ListeningServer

interface HealthReply {
  readonly ok: boolean
  readonly reason: string
}

/**
 * Serves `GET /live` (200 while the worker works, or has a valid reason not to) and `GET /ready` (200 while it takes
 * jobs and Redis answers); otherwise 503. Both answer `{"ok": boolean, "reason": string}`.
 */
export async function startHealthServer(options: HealthOptions): Promise<HealthServer> {
  const probes = createProbes(options)
  const server = createServer({ requestTimeout: 5000, headersTimeout: 5000 }, (request, response) => {
    const probe = request.method === 'GET' ? probes.get(request.url ?? '') : undefined
    if (!probe) return send(response, 404, { ok: false, reason: 'expected GET /live or GET /ready' })
    void probe().then((answer) => send(response, answer.ok ? 200 : 503, answer))
  })
  return listenAt(server, options.port, options.host)
}

function createProbes(options: HealthOptions): ReadonlyMap<string, () => Promise<HealthReply>> {
  const nowMs = options.nowMs ?? (() => performance.now())
  let state = INITIAL_LIVENESS
  const look = () => options.queueFacts().catch(() => undefined)
  return new Map([
    [
      '/live',
      async () => {
        const queue = await look()
        const observation = { queue, lastProgressMs: options.lastProgressMs(), nowMs: nowMs() }
        const verdict = judgeLiveness(state, observation, options.stallTimeoutMs)
        state = verdict.state
        return { ok: verdict.live, reason: verdict.reason }
      },
    ],
    [
      '/ready',
      async () => {
        if (!options.accepting()) return { ok: false, reason: 'not taking jobs' }
        return (await look()) ? { ok: true, reason: 'taking jobs' } : { ok: false, reason: 'Redis does not answer' }
      },
    ],
  ])
}

function send(response: ServerResponse, status: number, answer: HealthReply): void {
  response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' })
  response.end(`${JSON.stringify(answer)}\n`)
}
