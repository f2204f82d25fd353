import type { Bench, Figure, Row } from '../figure.ts'
import { SlowCommands, slowRow } from '../measure/slow-commands.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'
import { describePace, type Paced, paced, type Work } from '../scale/pacing.ts'

const CALLS_ASKED = 3
const WAKES_ASKED = 0.1
const WORK: Work = { perSecond: 500, processes: 4, workers: 1, concurrency: 40, jobMs: 20 }
const MANY: Work = { ...WORK, workers: 125, concurrency: 2 }

/** The backlog lasts longer than hundreds of workers take to open, and the measurement after that. */
const BACKLOG_S = 60

async function measure(bench: Bench, work: Work): Promise<Paced> {
  const queue = await makeQueue(bench, 'sluice', 'workers', { rate: `${WORK.perSecond}/s` })
  await addJobs(queue, WORK.perSecond * BACKLOG_S)
  const found = await paced(bench, queue, work)
  await removeQueue(queue)
  return found
}

function row(setup: string, found: Paced, before?: Paced): Row {
  return {
    setup,
    ...(before
      ? { asked: 'as with few', ok: found.excess <= 0 && Math.abs(found.rateKept - before.rateKept) <= 0.001 }
      : {}),
    reached: describePace(found),
    values: { ...found, starts: found.starts.length },
  }
}

/** If workers polled, or many were woken for one place, calls and wake-ups would grow with the number of workers. */
function callsRow(found: Paced, before: Paced): Row {
  const describe = ({ callsPerStart, wakesPerStart }: Paced) =>
    `${callsPerStart.toFixed(2)} scripts, ${wakesPerStart.toFixed(3)} wake-ups`
  const { callsPerStart, wakesPerStart } = found
  return {
    setup: 'for each start',
    asked: `<= ${CALLS_ASKED} scripts, <= ${WAKES_ASKED} wake-ups`,
    reached: `${describe(found)}; with few ${describe(before)}`,
    ok: callsPerStart <= CALLS_ASKED && wakesPerStart <= WAKES_ASKED,
    values: { callsPerStart, wakesPerStart },
  }
}

export const scaleWorkers: Figure = {
  name: 'scale-workers',
  title: `${MANY.workers * MANY.processes} workers on one queue, in ${MANY.processes} processes: rate, lateness, calls, connections, the slowest script`,
  run: async (bench) => {
    const slow = await SlowCommands.start(bench.client)
    const few = await measure(bench, WORK)
    await slow.take()
    const many = await measure(bench, MANY)
    const slowest = await slow.slowest()
    const workers = MANY.workers * MANY.processes
    const each = (many.connections - MANY.processes) / workers
    return [
      row(`${WORK.processes} workers × ${WORK.concurrency}`, few),
      row(`${workers} workers × ${MANY.concurrency}`, many, few),
      callsRow(many, few),
      { setup: 'connections per worker', reached: each.toFixed(2), values: { ...many, starts: undefined } },
      slowRow('the slowest script', slowest),
    ]
  },
}
