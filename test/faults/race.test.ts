import { expect, test } from 'vitest'
import { ShapedQueue } from '../../src/index.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()

type Message =
  | { type: 'ready' }
  | { type: 'outcome'; accepted: number; full: number; retryAfterMs: number[]; others: string[] }

test('500 producers in several processes that race for 100 places get exactly 100', async () => {
  const args = [redis.url, redis.prefix, 'race', '125']
  const script = new URL('./programs/racing-producer.ts', import.meta.url)
  const producers = Array.from({ length: 4 }, () => processes.fork<Message>(script, { args }))
  await Promise.all(producers.map((producer) => producer.waitFor('ready')))
  for (const producer of producers) producer.send('go')
  const outcomes = await Promise.all(producers.map((producer) => producer.waitFor('outcome')))
  await Promise.all(producers.map(({ exited }) => exited))

  const total = (count: (outcome: (typeof outcomes)[number]) => number) =>
    outcomes.reduce((sum, outcome) => sum + count(outcome), 0)
  expect(outcomes.flatMap(({ others }) => others)).toEqual([])
  expect(total(({ accepted }) => accepted)).toBe(100)
  expect(total(({ full }) => full)).toBe(400)
  const retries = outcomes.flatMap(({ retryAfterMs }) => retryAfterMs)
  expect(retries.every((ms) => Number.isInteger(ms) && ms > 0)).toBe(true)

  const queue = new ShapedQueue('race', { connection: redis.connection, prefix: redis.prefix })
  try {
    expect(await queue.getWaitingCount()).toBe(100)
    expect((await queue.meter()).refusedTotal).toBe(400)
  } finally {
    await queue.close()
  }
})
