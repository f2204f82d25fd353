import { fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { readEvents } from '../../packages/dashboard/test/server/event-reader.ts'
import { shapedQueue } from '../../packages/dashboard/test/server/support.ts'
import { ShapedWorker } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'

/** How long it runs; DASHBOARD_SECONDS. */
const SECONDS = Number(process.env.DASHBOARD_SECONDS ?? 600)
const CLIENTS = 10
const QUEUES = 20
const WARM_UP_SECONDS = Math.min(60, SECONDS / 4)
/** What the last quarter may hold more than the one after the warm-up, bytes in the mean. */
const MAX_HEAP_GROWTH = 3 * 1024 * 1024
const redis = useRedis(import.meta.url)

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length

test(
  `${CLIENTS} clients for ${SECONDS} s: the dashboard's memory is flat`,
  async () => {
    const queues = await Promise.all(
      Array.from({ length: QUEUES }, (_, i) => shapedQueue(redis, `queue-${i}`, { rate: '20/s', capacity: 1000 })),
    )
    const workers = queues.map(
      ({ name }) =>
        new ShapedWorker(name, async () => {}, {
          ...{ connection: redis.connection, prefix: redis.prefix, removeOnComplete: { count: 10 } },
        }),
    )
    onTestFinished(async () => void (await Promise.all(workers.map((worker) => worker.close()))))
    const server = fork(new URL('../../packages/dashboard/test/server/memory-server.ts', import.meta.url), [], {
      execArgv: ['--import', 'tsx', '--expose-gc'],
      env: { ...process.env, DASHBOARD_REDIS: JSON.stringify({ connection: redis.connection, prefix: redis.prefix }) },
    })
    onTestFinished(() => void server.kill('SIGKILL'))
    const [{ url }] = (await once(server, 'message')) as [{ url: string }]
    const readers = await Promise.all(
      Array.from({ length: CLIENTS }, (_, i) => readEvents(`${url}api/events?queue=queue-${i}`)),
    )
    let events = 0
    const reading = readers.map(async (reader) => {
      while ((await reader.next('fleet')) !== undefined) events += 1
    })

    const heaps: number[] = []
    for (let second = 0; second < SECONDS; second++) {
      await Promise.all(queues.map((queue) => queue.offer('job', { at: second })))
      // Pages come and go, and look at jobs.
      if (second % 5 === 0) (await readEvents(`${url}api/events`)).close()
      await fetch(`${url}api/queues/queue-${second % QUEUES}/jobs?state=completed`).then((answer) => answer.json())
      if (second % 5 === 4) {
        server.send('memory')
        const [{ heapUsed }] = (await once(server, 'message')) as [{ heapUsed: number }]
        if (second >= WARM_UP_SECONDS) heaps.push(heapUsed)
      }
      await sleep(1000)
    }
    for (const reader of readers) reader.close()
    await Promise.all(reading)
    const quarter = Math.max(1, Math.floor(heaps.length / 4))
    const growth = mean(heaps.slice(-quarter)) - mean(heaps.slice(0, quarter))
    console.log(`${events} events; heap ${heaps.map((heap) => (heap / 1e6).toFixed(1)).join(' ')} MB; growth ${growth}`)
    expect(events).toBeGreaterThan(CLIENTS * SECONDS * 0.8)
    expect(growth).toBeLessThan(MAX_HEAP_GROWTH)
  },
  (SECONDS * 1.5 + 120) * 1000,
)
