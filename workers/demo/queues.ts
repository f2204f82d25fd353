import { Queue } from 'bullmq'
import { type Shape, ShapedQueue } from '../../src/index.ts'

/** The two queues of the demonstration, named after the kind of line they carry. */
export const queueKinds = ['email', 'write'] as const
export type QueueKind = (typeof queueKinds)[number]

/** The names in Redis. */
export const queueNames: Readonly<Record<QueueKind, string>> = { email: 'emails', write: 'db-writes' }

/** What shapes the traffic: this library, or for comparison BullMQ's own limiter. */
export type Shaper = 'sluice' | 'bullmq'

export interface QueueSettings {
  shaper: Shaper
  redisUrl: string
  prefix: string
}

/** The settings as variables for a child process. */
export function queueEnv({ shaper, redisUrl, prefix }: QueueSettings): Record<string, string> {
  return { SHAPER: shaper, REDIS_URL: redisUrl, PREFIX: prefix }
}

/** The reverse: reads the settings in a child process. */
export function queueSettings(env: NodeJS.ProcessEnv): QueueSettings {
  return {
    shaper: env.SHAPER === 'bullmq' ? 'bullmq' : 'sluice',
    redisUrl: env.REDIS_URL ?? '',
    prefix: env.PREFIX ?? '',
  }
}

/** Opens a queue: one that obeys the shape stored in Redis, or BullMQ's own without a bound. */
export function openQueue(kind: QueueKind, { shaper, redisUrl, prefix }: QueueSettings, shape?: Shape): Queue {
  const options = { connection: { url: redisUrl }, prefix }
  if (shaper === 'bullmq') return new Queue(queueNames[kind], options)
  return new ShapedQueue(queueNames[kind], shape ? { ...options, shape } : options)
}

const shownFailures = 5

/** A queue as the demonstration monitors it. */
export interface DemoQueue {
  /** Waiting jobs. */
  depth(): Promise<number>
  /** Jobs that wait, run or will be retried. */
  unfinished(): Promise<number>
  workers(): Promise<number>
  /** Reasons of permanently failed jobs, a few of them. */
  failures(): Promise<string[]>
  remove(): Promise<void>
  close(): Promise<void>
}

/** Declares the shape of a queue and opens it for monitoring. Resolves when the shape is stored. */
export async function declareQueue(kind: QueueKind, settings: QueueSettings, shape: Shape): Promise<DemoQueue> {
  const queue = openQueue(kind, settings, shape)
  await queue.waitUntilReady()
  const count = (...states: ('waiting' | 'prioritized' | 'delayed' | 'active')[]) => queue.getJobCountByTypes(...states)
  return {
    depth: async () => {
      if (queue instanceof ShapedQueue) return (await queue.meter()).depth
      return count('waiting', 'prioritized', 'delayed')
    },
    unfinished: () => count('waiting', 'prioritized', 'delayed', 'active'),
    workers: () => queue.getWorkersCount(),
    failures: async () => {
      const failed = await queue.getFailed(0, shownFailures - 1)
      return failed.map((job) => `${queue.name} job ${job.id}: ${job.failedReason}`)
    },
    remove: () => queue.obliterate({ force: true }),
    close: () => queue.close(),
  }
}
