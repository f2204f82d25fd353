import type { Bench, Figure, Row } from '../figure.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'
import { farAway } from '../scale/distance.ts'
import { describePace, type Paced, paced, type Work } from '../scale/pacing.ts'

const ROUND_TRIPS_MS = [0, 20, 150]
const WORK: Work = { perSecond: 100, processes: 2, workers: 2, concurrency: 50, jobMs: 20 }
const BACKLOG_S = 60

async function measure(bench: Bench, roundTripMs: number): Promise<Paced> {
  const far = await farAway(bench.redis, roundTripMs)
  // Workers so far away cannot be sure of starting within 50 ms of a slot.
  const queue = await makeQueue(bench, 'sluice', 'far', {
    rate: `${WORK.perSecond}/s`,
    horizonMs: Math.max(50, 4 * roundTripMs),
  })
  try {
    await addJobs(queue, WORK.perSecond * BACKLOG_S)
    return await paced(bench, queue, { ...WORK, redis: far.address })
  } finally {
    await removeQueue(queue)
    far.stop()
  }
}

export const scaleDistance: Figure = {
  name: 'scale-distance',
  title: `Workers whose round trip to Redis is long: rate and lateness at ${WORK.perSecond}/s`,
  run: async (bench) => {
    const rows: Row[] = []
    for (const roundTripMs of ROUND_TRIPS_MS) {
      const found = await measure(bench, roundTripMs)
      rows.push({
        setup: `${roundTripMs} ms`,
        asked: 'rate 0.999 to 1.001, above by 0',
        reached: describePace(found),
        ok: found.excess <= 0 && Math.abs(found.rateKept - 1) <= 0.001,
        values: { ...found, starts: found.starts.length },
      })
    }
    return rows
  },
}
