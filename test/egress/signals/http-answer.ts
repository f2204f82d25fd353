import type { HttpAnswer } from '../../../src/egress/answer.ts'

/** 21 November 2026, 12:00:00 UTC. */
export const NOW_MS = Date.UTC(2026, 10, 21, 12)
export const NOW_S = NOW_MS / 1000
export const NOW_DATE = 'Sat, 21 Nov 2026 12:00:00 GMT'

type Given = Partial<HttpAnswer> & { readonly status: number }

/** An answer that came at {@link NOW_MS}. */
export function httpAnswer({ status, headers = {}, ...rest }: Given): HttpAnswer {
  const answer = { protocol: 'http', status, headers, failed: status >= 400, text: '', name: '', code: '' } as const
  return { ...answer, receivedAtMs: NOW_MS, ...rest }
}

export function withHeaders(headers: Readonly<Record<string, string>>, status = 200): HttpAnswer {
  return httpAnswer({ status, headers })
}
