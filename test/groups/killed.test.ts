import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { auditLimit } from '../../src/audit/limit-audit.ts'
import type { ShapedQueue } from '../../src/index.ts'
import { inspectorOf } from '../inspect/support.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const shop = new Workshop(redis)

/** Workers that die one after another while they run jobs named `poison`. */
async function killHolders(queue: ShapedQueue, times: number): Promise<void> {
  const script = new URL('../failures/programs/dying-worker.ts', import.meta.url)
  for (let i = 0; i < times; i++) {
    const dying = processes.fork(script, { args: [redis.url, redis.prefix, queue.name] })
    expect(await dying.exited, dying.output).toMatchObject({ signal: 'SIGKILL' })
  }
}

/** Two workers whose jobs run for so long, and the most jobs of one group that ran at once, but for those of `ungrouped`. */
function survivors(queue: ShapedQueue, jobMs: number, ungrouped: string, options: object) {
  const running = new Map<string, number>()
  const seen = { most: 0 }
  const workers = [1, 2].map(() =>
    shop.worker(
      queue,
      async ({ data: { group } }) => {
        running.set(group, (running.get(group) ?? 0) + 1)
        if (group !== ungrouped) seen.most = Math.max(seen.most, running.get(group) as number)
        await delay(jobMs)
        running.set(group, (running.get(group) as number) - 1)
      },
      { stalledInterval: 200, ...options },
    ),
  )
  return { workers, seen }
}

test('killed workers leak no place of a group, and no group ever runs more than it may', async () => {
  const queue = shop.queue({ groups: { concurrency: 1, rate: '200/s' } })
  const named = (group: string, name: string) => ({ name, data: { group }, opts: { group: { id: group } } })
  await queue.addBulk([
    ...['a', 'b', 'c'].flatMap((group) => [named(group, 'poison'), ...Array(5).fill(named(group, 'good'))]),
    ...Array(5).fill({ name: 'good', data: { group: 'none' } }),
  ])
  await killHolders(queue, 2)
  const { workers, seen } = survivors(queue, 5, 'none', { concurrency: 4 })
  const completed = eventsOf('completed', ...workers)
  await completed.until(() => completed.all.filter(({ name }) => name === 'poison').length === 3)
  await expect
    .poll(() => queue.getJobCounts('active', 'prioritized', 'waiting'))
    .toEqual({
      ...{ active: 0, prioritized: 0, waiting: 0 },
    })
  expect(await queue.getCompletedCount()).toBe(23)
  expect(seen.most).toBe(1)
  for (const group of ['a', 'b', 'c']) expect(await queue.getGroup(group)).toMatchObject({ status: 'idle', active: 0 })
})

test('killed holders under limits per group: never above a limit, never one more at once, and no place is lost', async () => {
  const limits = [
    { name: 'window', by: 'group', algorithm: 'fixed-window', rate: '4/s' },
    { name: 'bucket', by: 'group', unit: 'tokens', rate: '20/s', burst: 3 },
  ] as const
  const queue = shop.queue({ groups: { concurrency: 2 }, limits: [...limits], audit: 1000, maxLatenessMs: 60_000 })
  const inspector = inspectorOf(redis, shop)
  const named = (group: string, name: string) => ({
    ...{ name, data: { group } },
    opts: group === '' ? {} : { group: { id: group } },
  })
  const groups = ['a', 'b', '']
  await queue.addBulk(
    groups.flatMap((group) => [named(group, 'poison'), ...Array(4).fill(named(group, 'good')), named(group, 'poison')]),
  )
  await killHolders(queue, 3)
  const { workers, seen } = survivors(queue, 200, '', { concurrency: 8, maxStalledCount: 10 })
  const completed = eventsOf('completed', ...workers)
  const counts = () => queue.getJobCounts('active', 'prioritized', 'waiting', 'failed')
  await completed.until(() => completed.all.filter(({ name }) => name === 'poison').length === 6)
  await expect.poll(counts).toEqual({ active: 0, prioritized: 0, waiting: 0, failed: 0 })
  expect(await queue.getCompletedCount()).toBe(18)
  expect(seen.most).toBeLessThanOrEqual(2)
  // All slots, with those of the killed workers.
  const entries = await inspector.audit(queue.name)
  expect(entries.length).toBeGreaterThanOrEqual(18 + 3)
  for (const limit of limits) {
    for (const group of groups) {
      const charges = entries.flatMap(({ slotUs, groupLimits }) =>
        groupLimits?.id === group ? [{ us: slotUs, cost: groupLimits.taken[limit.name] as number }] : [],
      )
      expect(charges.length).toBeGreaterThanOrEqual(6)
      expect(auditLimit(limit, charges), `${limit.name} of ${group}`).toMatchObject({ broken: false })
    }
  }
  for (const group of ['a', 'b']) expect(await queue.getGroup(group)).toMatchObject({ status: 'idle', active: 0 })
  expect(await redis.client().exists(queue.toKey('meta:groups:held'), queue.toKey('meta:groups:full'))).toBe(0)
})
