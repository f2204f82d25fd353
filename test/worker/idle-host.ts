import type { Exchanged } from '../../src/departure/exchange.ts'
import type { HeldJob } from '../../src/departure/held-job.ts'
import { RedisClock } from '../../src/redis/clock.ts'
import { Dispatcher, type DispatchHost, type JobSource } from '../../src/worker/dispatcher.ts'

/** The loop of a worker with one place, no shape and nothing to report. */
export function idleDispatcher(
  given: Partial<Omit<DispatchHost, 'process'>> &
    Pick<DispatchHost, 'closing'> &
    Pick<JobSource, 'ask'> & { process(job: HeldJob): Promise<void> },
): Dispatcher {
  const host: DispatchHost & JobSource = {
    maxRateLimitDelayMs: 1000,
    lockDurationMs: 30_000,
    concurrency: () => 1,
    stopping: given.closing,
    overloaded: () => false,
    shape: undefined,
    receivedUntilMs: () => 0,
    ready: async () => {},
    waitForMarker: () => new Promise<number>(() => {}),
    giveBack: async () => {},
    recall: async () => undefined,
    ...given,
    process: async ([job], onEnd) => {
      await given.process(job as HeldJob)
      onEnd(job as HeldJob)
    },
  }
  return new Dispatcher(host, host, new RedisClock())
}

/** Ends that brought nothing. */
export const nothing: Exchanged = { ends: [], results: [], nowUs: undefined, reply: undefined, sentMs: 0 }
