import { expect, test } from 'vitest'
import { QueueFullError, type ShapedQueue } from '../../src/index.ts'
import { Fleet } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'

/** How many jobs a queue takes before it is full, and the capacity that it then names. */
async function fill(queue: ShapedQueue): Promise<number> {
  for (let jobs = 0; ; jobs++) {
    const refusal = await queue.add('job', {}).then(
      () => undefined,
      (error: Error) => error,
    )
    if (refusal instanceof QueueFullError && refusal.capacity === jobs) return jobs
    if (refusal) throw refusal
  }
}

// What the library keeps of a shape belongs to a key of either database, and to the data before the reload.
test.each(['auto', 'never'] as const)(
  'queues of the same name in two databases, which are swapped and loaded anew, keep their shapes (functions: %s)',
  async (functions) => {
    const { url } = await startOwnRedis({ args: ['--enable-debug-command', 'yes'] })
    const admin = adminOf(url)
    const fleet = new Fleet()
    const at = (db: number) => ({ ...quickConnection(url), db })
    const shapes = [{ rate: '500/s', burst: 3, capacity: 3 }, { capacity: 5 }] as const
    for (const [db, shape] of shapes.entries()) {
      await fleet.queue('mail', { connection: at(db), functions, shape }).waitUntilReady()
    }
    // They declare nothing, which they would store again.
    const [first, second] = [0, 1].map((db) => fleet.queue('mail', { connection: at(db), functions })) as [
      ShapedQueue,
      ShapedQueue,
    ]
    expect([await fill(first), await fill(second)]).toEqual([3, 5])

    await admin.call('SWAPDB', 0, 1)
    for (const [queue, capacity] of [
      [first, 5],
      [second, 3],
    ] as const) {
      await expect(queue.add('job', {})).rejects.toMatchObject({ name: 'QueueFullError', capacity })
    }
    const worker = fleet.worker('mail', { connection: at(1), functions, concurrency: 2 })
    await fleet.until(() => fleet.completed.length === 3)
    await worker.close()
    expect(await fill(second)).toBe(3)

    await admin.call('DEBUG', 'RELOAD')
    await expect(second.add('job', {})).rejects.toMatchObject({ capacity: 3 })
    for (const db of [0, 1]) fleet.worker('mail', { connection: at(db), functions, concurrency: 2 })
    await fleet.until(() => fleet.completed.length === 11)
    expect((await first.getShape())?.capacity).toBe(5)
    // Handles that knew the other shape take the swap for a loss, and hold.
    expect(fleet.losses.every(({ policy }) => policy === 'hold')).toBe(true)
    expect({ errors: fleet.errors, failed: fleet.failed }).toEqual({ errors: [], failed: [] })
  },
)
