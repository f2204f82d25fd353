import { setTimeout as sleep } from 'node:timers/promises'
import { type Shape, ShapedWorker } from 'sluice'
import { ALONE, type Bench, connectionTo, type Figure, inTurn, type RedisAddress, type Row } from './harness/figure.ts'
import { addJobs, amongGroups, makeQueue, OPEN_METER, removeQueue } from './harness/queues.ts'
import { median } from './harness/statistics.ts'

const PROCESSES = 4
const ASKED_MEDIAN_MS = 50
const ASKED_MOST_MS = 1000

/** ms since 1970, on the clock that all processes of this machine share, in parts of a ms. */
const nowMs = () => performance.timeOrigin + performance.now()

let worker: ShapedWorker | undefined
let begun = 0
const abortedMs: Record<string, number> = {}

/** Of a process with a worker whose jobs run until they are aborted. */
export const methods = {
  /** Resolves when the worker waits for jobs. */
  async open(queue: string, redis: RedisAddress, concurrency: number): Promise<void> {
    worker = new ShapedWorker(
      queue,
      async (job, _token, signal) => {
        begun += 1
        await new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve()))
        abortedMs[job.id as string] = nowMs()
        throw new Error('aborted')
      },
      { connection: connectionTo(redis), concurrency },
    )
    await worker.waitUntilReady()
  },
  /** Resolves when so many jobs have begun. */
  async began(jobs: number): Promise<void> {
    while (begun < jobs) await sleep(20)
  },
  /** When jobs were aborted, by id, once these are so many, or after some seconds. */
  async aborted(jobs: number): Promise<Readonly<Record<string, number>>> {
    const untilMs = nowMs() + 10 * ASKED_MOST_MS
    while (Object.keys(abortedMs).length < jobs && nowMs() < untilMs) await sleep(20)
    return abortedMs
  },
  async close(): Promise<void> {
    await worker?.close()
  },
}

/** Each job is cancelled here, one after another, while it runs in another process. */
async function cancelRow(bench: Bench, [setup, shape]: [string, Shape]): Promise<Row> {
  const each = bench.quick ? 10 : 100
  const queue = await makeQueue(bench, 'sluice', 'cancel', shape)
  const program = new URL(import.meta.url)
  const workers = Array.from({ length: PROCESSES }, () => bench.processes.start<typeof methods>(program))
  try {
    await Promise.all(workers.map((worker) => worker.call('open', queue.name, bench.redis, each)))
    await addJobs(queue, PROCESSES * each, shape.groups ? amongGroups(10) : {})
    await Promise.all(workers.map((worker) => worker.call('began', each)))
    const sentMs = new Map<string, number>()
    for (const id of await bench.client.lrange(queue.toKey('active'), 0, -1)) {
      sentMs.set(id, nowMs())
      await queue.cancelJob(id, { reason: 'bench' })
    }
    const aborted = Object.assign({}, ...(await Promise.all(workers.map((worker) => worker.call('aborted', each)))))
    const tookMs = [...sentMs].map(([id, atMs]) => (aborted[id] ?? Number.POSITIVE_INFINITY) - atMs)
    const [middleMs, mostMs] = [median(tookMs), Math.max(...tookMs)]
    return {
      setup: `${setup}: ${tookMs.length} running jobs`,
      asked: `median <= ${ASKED_MEDIAN_MS} ms, most <= ${ASKED_MOST_MS} ms`,
      reached: `median ${middleMs.toFixed(1)} ms, most ${mostMs.toFixed(1)} ms`,
      ok: middleMs <= ASKED_MEDIAN_MS && mostMs <= ASKED_MOST_MS,
      values: { tookMs },
    }
  } finally {
    await Promise.all(workers.map((worker) => worker.call('close').finally(() => worker.stop())))
    await removeQueue(queue)
  }
}

const SHAPES: readonly [string, Shape][] = [
  [`${PROCESSES} processes, no rate`, {}],
  [`${PROCESSES} processes at a rate, in groups`, { ...OPEN_METER, groups: {} }],
]

export const cancel: Figure = {
  name: 'cancel',
  title: 'From cancelJob to the aborted signal of a job that runs in another process',
  headings: ALONE,
  run: (bench) => inTurn(SHAPES, (one) => cancelRow(bench, one)),
}
