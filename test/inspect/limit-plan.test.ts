import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import type { ShapedQueue } from '../../src/index.ts'
import { type LimitPlan, limitPlan } from '../../src/inspect/limit-plan.ts'
import { readLimits } from '../../src/inspect/limit-reading.ts'
import { type BucketAlgorithm, encodeRule } from '../../src/limits/definition.ts'
import { createModel } from '../limits/model/model.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const START_US = 1_764_000_000_000_000
const S = 1_000_000
const BURST = 4

/** What is kept of a bucket of 2/s that owes 5 units, charged up to 0.4 s ahead. */
const KEPT: Readonly<Record<BucketAlgorithm, number>> = { gcra: 2.5 * S, 'leaky-bucket': 5, 'token-bucket': BURST - 5 }

test.each([
  ['gcra', '8/s'],
  ['token-bucket', '8/s'],
  ['leaky-bucket', '8/s'],
  ['gcra', '1/s'],
  ['token-bucket', '1/s'],
  ['leaky-bucket', '1/s'],
] as const)('shows what %s allows at a rate, now %s, that no script has come upon', (algorithm, rate) => {
  const wire = encodeRule({ algorithm, rate, burst: BURST })
  const model = createModel(encodeRule({ algorithm, rate: '2/s', burst: BURST }))
  model.now = START_US
  model.commit(4.2, 0.4 * S, 0)
  model.now = START_US + 0.1 * S
  model.change(wire, true)
  const packed = [START_US, KEPT[algorithm], 0.5 * S, 0.4 * S]
  const plan = limitPlan(wire, { packed, log: [], read: 0, before: 0 }, model.now)
  expect(plan.earliest(3)).toBeCloseTo(model.earliest(3), 3)
})

/** Charges of 1, one each second, the last of them a second ago. */
async function fillLog(client: Redis, queue: ShapedQueue, charges: number, nowUs: number): Promise<string> {
  const limits = (await client.hget(queue.toKey('meta:shape'), 'limits')) as string
  const [{ name, state }] = JSON.parse(limits) as [{ name: string; state: string }]
  const entries = Array.from({ length: charges }, (_, i) => [nowUs - (charges - i) * S, i + 1] as const)
  await client.zadd(`${queue.toKey('')}meta:limit:${name}${state}`, -nowUs, 'seen', ...entries.flat())
  return limits
}

test('of the log of a large window only what the next jobs wait for is read', async () => {
  const queue = shop.queue({ limits: [{ name: 'log', algorithm: 'sliding-window-log', rate: '3000/h' }] })
  await queue.waitUntilReady()
  const client = redis.client()
  const nowUs = Date.now() * 1000
  const limits = await fillLog(client, queue, 3000, nowUs)
  const received = () => (client as unknown as { stream: { bytesRead: number } }).stream.bytesRead
  const before = received()
  const { holding } = await readLimits(client, queue.toKey(''), limits, nowUs)
  expect(received() - before).toBeLessThan(20_000)
  const plan = holding[0]?.plan as LimitPlan
  // A job of 1000 units waits for 1000 charges, of which the last was not read: they came evenly.
  expect(plan.earliest(1000)).toBeCloseTo(3600 * S - (3000 - 999) * S, -3)
  for (let job = 0; job < 50; job++) {
    const offsetUs = plan.earliest(1)
    expect(offsetUs).toBe(3600 * S - (3000 - job) * S)
    plan.charge(1, offsetUs)
  }
})
