import { afterEach, expect, test } from 'vitest'
import type { Shape } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { asksUntil, callsOf, departuresOf, gate, Workshop } from './support.ts'

// Delayed jobs under a global concurrency. A worker that does not know when the next one is due waits for 10 s, and longer
// than a test has.
const LATE_MS = 8000
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const options = { concurrency: 3, drainDelay: 10 }
const end = gate()

afterEach(() => end.open())

/** Resolves when the first delayed job is due on Redis's clock. BullMQ's score is that time in ms * 4096 + a counter. */
async function nextDelayedIsDue(key: string): Promise<void> {
  const [, score = '0'] = await client.zrange(key, '0', '0', 'WITHSCORES')
  for (;;) {
    const [seconds, micros] = await client.time()
    if (Number(seconds) * 1000 + Number(micros) / 1000 > Number(score) / 4096 + 1) return
  }
}

const shapes: [string, Shape][] = [
  ['without a rate', { concurrency: 1 }],
  ['with a rate', { rate: '1000/s', concurrency: 1 }],
]

test.each(shapes)(
  'retries leave that get due while a job runs and after it, %s',
  { timeout: LATE_MS },
  async (_, shape) => {
    const queue = shop.queue(shape)
    await queue.waitUntilReady()
    const work = async ({ name, attemptsMade }: { name: string; attemptsMade: number }) => {
      if (name === 'long') await nextDelayedIsDue(queue.toKey('delayed'))
      else if (attemptsMade === 0) throw new Error(`${name} comes again`)
    }
    const workers = [1, 2].map(() => shop.worker(queue, work, options))
    const departed = departuresOf(...workers)
    const again = (delay: number) => ({ attempts: 2, backoff: { type: 'fixed', delay } })
    await queue.addBulk([
      { name: 'soon', data: {}, opts: again(300) },
      { name: 'later', data: {}, opts: again(1500) },
      { name: 'long', data: {} },
    ])
    const all = await departed.reach(5)
    expect(all.map(({ name }) => name)).toEqual(['soon', 'later', 'long', 'soon', 'later'])
  },
)

test('a delayed job leaves at its time after the global concurrency was raised', { timeout: LATE_MS }, async () => {
  const queue = shop.queue({ rate: '1000/s', concurrency: 1 })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, ({ name }) => (name === 'long' ? end.opened : Promise.resolve()), options)
  const [departed, calls] = [departuresOf(worker), callsOf(worker)]
  const departs = (wanted: string) => departed.until((all) => all.some(({ name }) => name === wanted))
  // The worker hears when it is due, and loses that when it asks for the job that takes the only place.
  await queue.add('delayed', {}, { delay: 1500 })
  await asksUntil(calls, 'empty')
  await queue.add('long', {})
  await departs('long')
  await calls.until((all) => all.at(-1)?.reply.delayedMs === 0)
  await queue.setShape({ concurrency: 2 }, { by: 'test', reason: 'to see it felt' })
  await departs('delayed')
  expect(departed.all).toHaveLength(2)
})
