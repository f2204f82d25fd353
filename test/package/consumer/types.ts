// Compiled, never run: what a project sees of the types.
// The project has nothing but the library and its peers: no declaration may need more.
import { Queue } from 'bullmq'
import {
  createShapedBackend,
  type Departure,
  type Offer,
  type QueueFullError,
  type Shape,
  ShapedFlowProducer,
  ShapedQueue,
  ShapedWorker,
} from 'sluice'
import { answerOf, extendProfile, type Profile, profiles, type Rule, testRules } from 'sluice/egress'
import { Inspector, type QueueStatus } from 'sluice/inspect'
import { combine, createLimiter, type LimitAnswer } from 'sluice/limits'
import { ShardedQueue, ShardedWorker } from 'sluice/sharding'
import { expectPaced, unshaped } from 'sluice/testing'

interface Mail {
  to: string
}

const connection = { host: 'localhost' }
const shape: Shape = { rate: { limit: 50, period: 1000 }, burst: 2, capacity: 10, concurrency: 3 }
const queue = new ShapedQueue<Mail, string, 'welcome'>('mails', { connection, shape })
const job = await queue.add('welcome', { to: 'a@example.com' }, { cost: 2, attempts: 3 })
export const to: string = job.data.to

// @ts-expect-error data of another type
queue.add('welcome', { to: 1 })
// @ts-expect-error another name
queue.add('goodbye', { to: 'a@example.com' })

const offer: Offer<typeof job> = await queue.offer('welcome', { to: 'a@example.com' })
export const retryAfterMs: number = offer.accepted ? 0 : offer.retryAfterMs

export const worker = new ShapedWorker<Mail, string>('mails', async ({ data }) => data.to, {
  connection,
  concurrency: 2,
})
worker.on('departed', (_job, { departureTimeUs }: Departure) => expectPaced([departureTimeUs], { rate: '1/s' }))
worker.on('completed', (_job, result: string) => result.length)
// @ts-expect-error the limiter of BullMQ is not an option
new ShapedWorker('mails', null, { connection, limiter: { max: 1, duration: 1 } })

export const flows = new ShapedFlowProducer({ connection })
export const stock: Queue = new Queue('mails', { connection }, createShapedBackend)
export const plain = new ShapedQueue('mails', { connection, ...unshaped({ rate: '50/s', groups: {} }) })
export const wait = (error: QueueFullError): number => error.retryAfterMs

export async function limited(redis: import('ioredis').Redis): Promise<LimitAnswer> {
  const limiter = createLimiter(redis, { name: 'api', rate: '10/s', burst: 10 })
  return combine([limiter]).take({ api: 'ada' })
}

const rules: readonly Rule[] = [{ match: { status: 421 }, action: { pause: '5 min' } }]
export const relay: Profile = extendProfile(profiles.smtp, { rules })
export const wins = (error: unknown): boolean =>
  testRules(relay.rules, answerOf({ threw: error })).some((test) => test.wins)
// @ts-expect-error an action that there is not
extendProfile(profiles.smtp, { rules: [{ match: { status: 421 }, action: 'stop' }] })

export const calls = new ShapedWorker<Mail, number>('calls', async ({ data }) => data.to.length, {
  connection,
  feedback: profiles.http,
  adapt: true,
})
calls.on('feedback', ({ kind, reason }) => `${kind} ${reason}`.length)
// @ts-expect-error no profile
new ShapedWorker('calls', null, { connection, feedback: 'http' })
export const statuses: Promise<(QueueStatus | undefined)[]> = new Inspector({ connection }).status(['mails'])
const shards = { connection, shards: 2 }
export const sharded = new ShardedQueue<Mail, string>('mails', { ...shards, shape })
export const ofShards = new ShardedWorker<Mail, string>('mails', async ({ data }) => data.to, {
  ...shards,
  concurrency: 2,
})
