import { type JobJson, QueueKeys, RedisQueueBackend } from 'bullmq'
import { sendingCalls } from '../../src/admission/add-call.ts'
import type { HeldJob } from '../../src/departure/held-job.ts'
import type { Argument } from '../../src/redis/commands.ts'

/** As in src/worker/options.ts. */
const DEFAULT_MAX_STALLED_COUNT = 2
/** After nine keys, their number and the prefix. */
const TIMESTAMP_OF_STALLED = 11

/** BullMQ's own arguments for its scripts, computed without a connection. */
export interface BullmqArguments {
  /** For the script that adds a job to the wait list. */
  addStandardJob(id: string, timestamp: number): Promise<Argument[]>
  moveToCompleted(held: HeldJob, token: string, timestamp: number, fetches: boolean): Argument[]
  moveToDelayed(held: HeldJob, token: string, timestamp: number, delayMs: number, fetches: boolean): Argument[]
  moveStalledJobsToWait(timestamp: number): Argument[]
}

export function bullmqArguments(base: string, options: object): BullmqArguments {
  const [prefix, name] = [base.slice(0, base.lastIndexOf(':', base.length - 2)), base.split(':').at(-2) as string]
  const keys = new QueueKeys(prefix)
  const stub = Object.create(RedisQueueBackend.prototype) as RedisQueueBackend
  const map = keys.getKeys(name)
  const queue = {
    keys: map,
    opts: {
      removeOnComplete: undefined,
      removeOnFail: undefined,
      maxStalledCount: DEFAULT_MAX_STALLED_COUNT,
      ...options,
    },
    client: Promise.resolve(undefined),
    closing: undefined,
    toKey: (type: string) => keys.toKey(name, type),
  }
  const first = ['wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc']
  const moveToFinishedKeys = [...first.map((type) => map[type]), undefined, undefined, undefined, undefined]
  Object.defineProperties(stub, {
    queue: { value: queue },
    moveToFinishedKeys: { get: () => [...moveToFinishedKeys] },
  })
  type Made = 'moveToFinishedArgs' | 'moveToDelayedArgs' | 'moveStalledJobsToWaitArgs'
  const made = stub as unknown as Record<Made, (...args: unknown[]) => Argument[]>
  const job = (timestamp: number) => ({ name: 'job', data: '{}', opts: {}, timestamp }) as unknown as JobJson
  return {
    addStandardJob: (id, timestamp) =>
      argumentsOf<RedisQueueBackend>(stub, function addStandardJob() {
        return RedisQueueBackend.prototype.addJobToTransaction.call(this, undefined as never, job(timestamp), id)
      }),
    moveToCompleted: ({ id }, token, timestamp, fetches) =>
      made.moveToFinishedArgs(
        ...[{ id, opts: { attempts: 1 } }, '0', 'returnvalue', undefined, 'completed', token, timestamp, fetches],
      ),
    moveToDelayed: ({ id }, token, timestamp, delayMs, fetches) =>
      made.moveToDelayedArgs(id, timestamp, token, delayMs, { fetchNext: fetches }),
    moveStalledJobsToWait: (timestamp) => made.moveStalledJobsToWaitArgs().with(TIMESTAMP_OF_STALLED, timestamp),
  }
}

/** The arguments with which a method of BullMQ's backend would call its script. */
export async function argumentsOf<B extends object>(
  backend: B,
  method: (this: B) => Promise<unknown>,
): Promise<Argument[]> {
  let sent: Argument[] = []
  const copy = sendingCalls(backend, (_script, args) => {
    sent = args
    return 0
  })
  await method.call(copy)
  return sent
}
