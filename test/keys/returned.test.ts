import { expect, test } from 'vitest'
import type { QueueLimit } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { asksUntil, callsOf, quiet, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const MOST = 200

test.each<[string, Omit<QueueLimit, 'name'>, boolean]>([
  ['a day', { algorithm: 'fixed-window', align: 'day', rate: `${MOST}/day` }, false],
  [
    'a window that begins with its first unit',
    { algorithm: 'fixed-window', align: 'first', rate: `${MOST}/day` },
    true,
  ],
  ['a log', { algorithm: 'sliding-window-log', rate: `${MOST}/day` }, true],
  ['a counter', { algorithm: 'sliding-window-counter', rate: `${MOST}/day` }, true],
  ['the first day of a plan', { warmUp: { plan: [MOST, 2 * MOST].map((quota, i) => ({ day: i + 1, quota })) } }, true],
])('of 200 a day exactly 200 processors run, although jobs go back late: %s', async (_what, rule, goesBack) => {
  // Within a day late jobs may run, but not those that another limit spaces out.
  const others: QueueLimit[] = rule.warmUp ? [{ name: 'spaced', by: 'model', rate: '1000/s', burst: 1000 }] : []
  for (const more of rule.warmUp ? [{}] : [{}, { shared: true, prefix: redis.prefix }]) {
    const limit = { name: `quota${rule.algorithm}${rule.align}`, by: 'model', ...rule, ...more } as QueueLimit
    const queue = shop.queue({ limits: [limit, ...others], maxLatenessMs: 40 })
    await queue.addBulk(Array.from({ length: 260 }, () => ({ name: 'job', data: {}, opts: { keys: { model: 'm' } } })))
    let ran = 0
    const worker = shop.worker(
      queue,
      async () => {
        ran += 1
        // The others that came with the first of all are late then.
        const until = performance.now() + (ran % 20 === 1 ? 60 : 0)
        while (performance.now() < until);
      },
      { concurrency: 20, autorun: false },
    )
    const calls = callsOf(worker)
    void worker.run()
    await asksUntil(calls, 'closed')
    await quiet(client, calls)
    expect(ran).toBe(MOST)
    const [departed, forfeited] = await client.hmget(queue.toKey('meta:meter'), 'departedTotal', 'forfeitedTotal')
    expect(Number(departed)).toBe(MOST)
    if (goesBack) expect(Number(forfeited)).toBeGreaterThan(0)
    if (!limit.shared) continue
    const { by: _by, shared: _shared, ...ofLimiter } = limit
    expect((await createLimiter(client, { ...ofLimiter, timeoutMs: 10_000 }).peek('m')).remaining).toBe(0)
    await worker.close()
  }
})
