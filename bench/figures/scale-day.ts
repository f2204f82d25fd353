import { setTimeout as sleep } from 'node:timers/promises'
import type { ShapedQueue } from 'sluice'
import type { Figure, Row } from '../figure.ts'
import { SlowCommands, slowRow } from '../measure/slow-commands.ts'
import { makeQueue } from '../queues.ts'
import { memoryOf } from '../scale/deep-queue.ts'
import { describePace, paced, paceOf, type Work } from '../scale/pacing.ts'

const WORK: Work = { perSecond: 200, processes: 2, workers: 2, concurrency: 20, jobMs: 5 }
const HOURS = 24
/** Arrivals come in so many steps an hour. */
const STEPS = 20
/** As soon as nothing waits, what is kept for a while runs out. */
const KEPT_MS = 35_000

/** The share of the rate that arrives in an hour of the day: quiet at night, above the rate before noon and in the evening. */
function arrivalsAt(hour: number): number {
  const peak = (at: number) => Math.exp(-((hour - at) ** 2) / 6)
  return 0.1 + 1.4 * peak(10) + 1.4 * peak(20)
}

/** One job in some has a priority, a delay, or an idempotency key. */
async function arrive(queue: ShapedQueue, n: number): Promise<unknown> {
  const removed = { removeOnComplete: true, removeOnFail: true }
  if (n % 10 === 0) return queue.offer('job', {}, { ...removed, priority: 1 + (n % 3) })
  if (n % 11 === 0) return queue.offer('job', {}, { ...removed, delay: 200 })
  if (n % 13 === 0)
    return queue
      .addOnce([{ name: 'job', data: {}, opts: removed }], { key: `k${n}`, fingerprint: 'f', ttlMs: 5000 })
      .catch(() => {})
  return queue.offer('job', {}, removed)
}

async function wholeDay(queue: ShapedQueue, hourMs: number): Promise<void> {
  const stepMs = hourMs / STEPS
  let due = 0
  let n = 0
  const startedMs = performance.now()
  for (let step = 0; step < HOURS * STEPS; step++) {
    due += (arrivalsAt(step / STEPS) * WORK.perSecond * stepMs) / 1000
    const arrivals: Promise<unknown>[] = []
    for (; n < due; n++) arrivals.push(arrive(queue, n))
    await Promise.all(arrivals)
    await sleep(Math.max(0, startedMs + (step + 1) * stepMs - performance.now()))
  }
}

export const scaleDay: Figure = {
  name: 'scale-day',
  title:
    'A day of traffic in quick motion, with two peaks above the rate: what is left of it, and the evening beside the morning',
  run: async (bench) => {
    const { client } = bench
    await client.flushall()
    const hourMs = bench.quick ? 1000 : 4500
    const slow = await SlowCommands.start(client)
    const queue = await makeQueue(bench, 'sluice', 'day', { rate: `${WORK.perSecond}/s`, capacity: 100_000 })
    const [keys, memory] = [await client.dbsize(), await memoryOf(bench)]
    const { starts } = await paced(bench, queue, WORK, async () => {
      await wholeDay(queue, hourMs)
      while ((await queue.getJobCountByTypes('wait', 'prioritized', 'delayed', 'active')) > 0) await sleep(100)
    })
    const slowest = await slow.slowest()
    await sleep(KEPT_MS)
    const [keysAfter, memoryAfter] = [await client.dbsize(), await memoryOf(bench)]
    await queue.obliterate({ force: true })
    await queue.close()
    const left = await client.dbsize()
    const startedUs = starts[0]?.startedUs ?? 0
    const between = (from: number, to: number) => {
      const hours = starts.map((start) => ({ start, hour: (start.startedUs - startedUs) / 1000 / hourMs }))
      return paceOf(
        hours.filter(({ hour }) => hour >= from && hour < to).map(({ start }) => start),
        WORK.perSecond,
      )
    }
    const [morning, evening] = [between(9, 13), between(19, 23)]
    const rows: Row[] = [
      { setup: 'morning, while jobs wait', reached: describePace(morning), values: { ...morning } },
      {
        setup: 'evening, while jobs wait',
        asked: 'as in the morning',
        reached: describePace(evening),
        ok: Math.abs(evening.rateKept - morning.rateKept) <= 0.001,
        values: { ...evening },
      },
      slowRow('the slowest script', slowest),
      {
        setup: `after ${starts.length} jobs, the queue is empty`,
        reached: `${keysAfter} keys (before: ${keys}), ${((memoryAfter - memory) / 1024).toFixed(0)} KB more memory`,
        values: { keys, keysAfter, memory, memoryAfter },
      },
      { setup: 'keys left', asked: '0', reached: String(left), ok: left === 0, values: { left } },
    ]
    return rows
  },
}
