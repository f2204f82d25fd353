import type { Figure, Row } from '../figure.ts'
import { describeSlow, SlowCommands } from '../measure/slow-commands.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'
import { describePaced, type Paced, paced, type Work } from '../scale/pacing.ts'

const ASKED_MS = 5
const WORK: Work = { perSecond: 500, processes: 4, workers: 1, concurrency: 40, jobMs: 20 }
const MANY: Work = { ...WORK, workers: 125, concurrency: 2 }

function row(setup: string, found: Paced, before?: Paced): Row {
  return {
    setup,
    ...(before
      ? { asked: 'as with few', ok: found.excess <= 0 && Math.abs(found.rateKept - before.rateKept) <= 0.001 }
      : {}),
    reached: describePaced(found),
    values: { ...found, starts: found.starts.length },
  }
}

export const scaleWorkers: Figure = {
  name: 'scale-workers',
  title: `${MANY.workers * MANY.processes} workers on one queue, in ${MANY.processes} processes: rate, lateness, connections, the slowest script`,
  run: async (bench) => {
    const slow = await SlowCommands.start(bench.client)
    const queue = await makeQueue(bench, 'sluice', 'workers', { rate: `${WORK.perSecond}/s` })
    await addJobs(queue, WORK.perSecond * 40)
    const few = await paced(bench, queue, WORK)
    await slow.take()
    const many = await paced(bench, queue, MANY)
    const slowest = await slow.slowest()
    await removeQueue(queue)
    const workers = MANY.workers * MANY.processes
    const each = (many.connections - MANY.processes) / workers
    return [
      row(`${WORK.processes} workers × ${WORK.concurrency}`, few),
      row(`${workers} workers × ${MANY.concurrency}`, many, few),
      { setup: 'connections per worker', reached: each.toFixed(2), values: { ...many, starts: undefined } },
      {
        setup: 'the slowest script',
        asked: `<= ${ASKED_MS} ms`,
        reached: describeSlow(slowest),
        ok: slowest.every(({ ms }) => ms <= ASKED_MS),
        values: { slowest },
      },
    ]
  },
}
