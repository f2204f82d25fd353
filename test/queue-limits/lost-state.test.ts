import { afterAll, expect, test } from 'vitest'
import type { QueueLimit } from '../../src/index.ts'
import { worstExcess } from '../faults/support/bound.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

// What docs/limits.md says of a Redis that has lost its data: limits begin anew.
const redis = useRedis(import.meta.url)
const client = redis.client()
const held = new HeldQueue(redis, client, 'held')
afterAll(() => held.close())

const SECOND = 1_000_000

/** Slots of two grants, between which Redis loses all that it knows of the limits. */
async function slotsAcrossLoss(limit: Partial<QueueLimit>, horizonUs: number): Promise<number[]> {
  await held.reset({ limits: [{ name: 'shared', shared: true, prefix: redis.prefix, ...limit }] })
  const slots: number[] = []
  const grant = async () => {
    for (let i = 0; i < 30; i++) await held.add()
    for (const { slotUs } of (await held.depart(30, horizonUs)).grants) slots.push(slotUs)
  }
  await grant()
  await client.unlink(...(await client.keys(`${redis.prefix}:limit:*`)))
  await grant()
  return slots
}

test.each(['gcra', 'token-bucket', 'leaky-bucket'] as const)(
  '%s: above by a burst and a horizon',
  async (algorithm) => {
    const slots = await slotsAcrossLoss({ algorithm, rate: '10/s', burst: 4 }, SECOND / 2)
    expect(worstExcess(slots, { intervalUs: SECOND / 10, burst: 4 })).toBeCloseTo(4 + 5, 4)
  },
)

test.each(['fixed-window', 'sliding-window-log', 'sliding-window-counter'] as const)(
  '%s: the limit once more',
  async (algorithm) => {
    const slots = await slotsAcrossLoss({ algorithm, rate: '10/s' }, 0)
    expect(slots).toHaveLength(20)
  },
)
