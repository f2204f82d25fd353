import type { Exchanged } from '../../src/departure/exchange.ts'
import type { DispatchHost } from '../../src/worker/dispatcher.ts'

/** A worker with one place, no shape and nothing to report, for tests of the dispatcher alone. */
export function idleHost(
  given: Partial<DispatchHost> & Pick<DispatchHost, 'depart' | 'process' | 'closing'>,
): DispatchHost {
  return {
    workerId: 'worker',
    allowUnshaped: true,
    maxRateLimitDelayMs: 1000,
    lockDurationMs: 30_000,
    concurrency: () => 1,
    stopping: given.closing,
    overloaded: () => false,
    shape: () => undefined,
    nextToken: () => 'token',
    heardAtMs: () => 0,
    ready: async () => {},
    waitForMarker: () => new Promise<number>(() => {}),
    giveBack: async () => {},
    onReply: () => {},
    onFetched: () => {},
    onLate: () => {},
    onEmpty: () => {},
    onUnshaped: () => {},
    onError: (error) => {
      throw error
    },
    ...given,
  }
}

/** Ends that brought nothing. */
export const nothing: Exchanged = { ends: [], results: [], reply: undefined, sentMs: 0 }
