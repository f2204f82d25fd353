import { setTimeout as sleep } from 'node:timers/promises'
import type { Shape } from 'sluice'
import type { CancelWorkerMethods } from './cancel-worker.ts'
import { ALONE, type Bench, type Figure, inTurn, type Row } from './harness/figure.ts'
import type { Remote } from './harness/processes.ts'
import { addJobs, makeQueue, OPEN_METER, removeQueue } from './harness/queues.ts'
import { median } from './harness/statistics.ts'

const PROCESSES = 4
const ASKED_MEDIAN_MS = 50
const ASKED_MOST_MS = 1000

interface Scenario {
  readonly setup: string
  readonly shape: Shape
}

const SCENARIOS: readonly Scenario[] = [
  { setup: `${PROCESSES} processes, no rate`, shape: {} },
  { setup: `${PROCESSES} processes at a rate, in groups`, shape: { ...OPEN_METER, groups: {} } },
]

const nowMs = () => performance.timeOrigin + performance.now()

async function abortsOf(workers: readonly Remote<CancelWorkerMethods>[], jobs: number): Promise<Map<string, number>> {
  const all = new Map<string, number>()
  for (let waitedMs = 0; all.size < jobs && waitedMs < 10 * ASKED_MOST_MS; waitedMs += 20) {
    await sleep(20)
    for (const worker of workers) {
      for (const [id, atMs] of Object.entries(await worker.call('takeAborted'))) all.set(id, atMs)
    }
  }
  return all
}

/** Each job is cancelled here, one after another, while it runs in another process. */
async function cancelRow(bench: Bench, { setup, shape }: Scenario): Promise<Row> {
  const jobs = bench.quick ? 40 : 400
  const queue = await makeQueue(bench, 'sluice', 'cancel', shape)
  const program = new URL('cancel-worker.ts', import.meta.url)
  const workers = Array.from({ length: PROCESSES }, () => bench.processes.start<CancelWorkerMethods>(program))
  try {
    await Promise.all(workers.map((worker) => worker.call('open', queue.name, bench.redis, jobs / PROCESSES)))
    await addJobs(queue, jobs, 'groups' in shape ? (i) => ({ group: { id: `g${i % 10}` } }) as never : {})
    const begun = async () => (await Promise.all(workers.map((worker) => worker.call('begun')))).reduce((a, b) => a + b)
    while ((await begun()) < jobs) await sleep(50)
    const sentMs = new Map<string, number>()
    for (const id of await bench.client.lrange(queue.toKey('active'), 0, -1)) {
      sentMs.set(id, nowMs())
      await queue.cancelJob(id, { reason: 'bench' })
    }
    const aborted = await abortsOf(workers, jobs)
    const tookMs = [...sentMs].map(([id, atMs]) => (aborted.get(id) ?? Number.POSITIVE_INFINITY) - atMs)
    const [middleMs, mostMs] = [median(tookMs), Math.max(...tookMs)]
    return {
      setup: `${setup}: ${jobs} running jobs`,
      asked: `median ≤ ${ASKED_MEDIAN_MS} ms, most ≤ ${ASKED_MOST_MS} ms`,
      reached: `median ${middleMs.toFixed(1)} ms, most ${mostMs.toFixed(1)} ms`,
      ok: middleMs <= ASKED_MEDIAN_MS && mostMs <= ASKED_MOST_MS,
      values: { tookMs },
    }
  } finally {
    await Promise.all(workers.map((worker) => worker.call('close').finally(() => worker.stop())))
    await removeQueue(queue)
  }
}

export const cancel: Figure = {
  name: 'cancel',
  title: 'From cancelJob to the aborted signal of a job that runs in another process',
  headings: ALONE,
  run: (bench) => inTurn(SCENARIOS, (scenario) => cancelRow(bench, scenario)),
}
