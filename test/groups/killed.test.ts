import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const shop = new Workshop(redis)

test('killed workers leak no place of a group, and no group ever runs more than it may', async () => {
  const queue = shop.queue({ groups: { concurrency: 1, rate: '200/s' } })
  const named = (group: string, name: string) => ({ name, data: { group }, opts: { group: { id: group } } })
  await queue.addBulk([
    ...['a', 'b', 'c'].flatMap((group) => [named(group, 'poison'), ...Array(5).fill(named(group, 'good'))]),
    ...Array(5).fill({ name: 'good', data: { group: 'none' } }),
  ])
  const script = new URL('../failures/programs/dying-worker.ts', import.meta.url)
  for (let i = 0; i < 2; i++) {
    const dying = processes.fork(script, { args: [redis.url, redis.prefix, queue.name] })
    expect(await dying.exited, dying.output).toMatchObject({ signal: 'SIGKILL' })
  }
  const running = new Map<string, number>()
  let most = 0
  const workers = [1, 2].map(() =>
    shop.worker(
      queue,
      async ({ data: { group } }) => {
        running.set(group, (running.get(group) ?? 0) + 1)
        if (group !== 'none') most = Math.max(most, running.get(group) as number)
        await delay(5)
        running.set(group, (running.get(group) as number) - 1)
      },
      { concurrency: 4, lockDuration: 500, stalledInterval: 200 },
    ),
  )
  const completed = eventsOf('completed', ...workers)
  await completed.until(() => completed.all.filter(({ name }) => name === 'poison').length === 3)
  await expect
    .poll(() => queue.getJobCounts('active', 'prioritized', 'waiting'))
    .toEqual({
      ...{ active: 0, prioritized: 0, waiting: 0 },
    })
  expect(await queue.getCompletedCount()).toBe(23)
  expect(most).toBe(1)
  for (const group of ['a', 'b', 'c']) expect(await queue.getGroup(group)).toMatchObject({ status: 'idle', active: 0 })
})
