import type { Fetch, FetchWait, PoliteFetchOptions } from '../../src/client/options.ts'
import { PoliteClient } from '../../src/client/polite-fetch.ts'
import { HeldClock } from './held-clock.ts'

export interface Sent {
  /** ms since the clock's start. */
  readonly atMs: number
  readonly url: string
  readonly method: string
  readonly body: unknown
}

/** An answer: status and headers; or an error that `fetch` throws; or when it comes, ms, on the held clock. */
export type Script = {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  readonly error?: Error
  readonly afterMs?: number
}

/** A client on a held clock, and the other side that it talks to: `answer` says what each request gets. */
export function politeClient(answer: (sent: Sent, index: number) => Script, options: PoliteFetchOptions = {}) {
  const clock = new HeldClock()
  const startMs = clock.nowMs()
  const sent: Sent[] = []
  const waits: FetchWait[] = []
  const fetch: Fetch = async (input, init) => {
    const request = input instanceof Request ? input : undefined
    const url = request?.url ?? String(input)
    const method = init?.method ?? request?.method ?? 'GET'
    const one = { atMs: clock.nowMs() - startMs, url, method, body: init?.body }
    sent.push(one)
    const { status = 200, headers = {}, body = 'here', error, afterMs = 0 } = answer(one, sent.length - 1)
    if (afterMs > 0) await passed(clock, afterMs, init?.signal ?? undefined)
    if (error) throw error
    return new Response([204, 304].includes(status) ? null : body, { status, headers })
  }
  const onWait = (wait: FetchWait) => {
    waits.push(wait)
    options.onWait?.(wait)
  }
  const client = new PoliteClient({ fetch, ...options, onWait }, clock)
  return { clock, sent, waits, client, fetch: client.fetch, starts: () => sent.map(({ atMs }) => atMs) }
}

function passed(clock: HeldClock, ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = clock.after(ms, resolve)
    signal?.addEventListener('abort', () => {
      stop()
      reject(signal.reason)
    })
  })
}
