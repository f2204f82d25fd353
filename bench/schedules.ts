import { setTimeout as sleep } from 'node:timers/promises'
import type { RateSchedule, Shape, ShapedWorker } from 'sluice'
import type { Arrival } from '../packages/cli/src/simulate/arrival.ts'
import { simulate } from '../packages/cli/src/simulate/simulation.ts'
import { encodeRate } from '../src/limits/schedule.ts'
import { gridIntervalUs } from '../src/rate.ts'
import { ServiceCurve } from '../src/shape/service-curve.ts'
import { rounds } from './harness/compare.ts'
import { ALONE, type Bench, type Figure, inTurn, type Row } from './harness/figure.ts'
import { addJobs, makeQueue, makeWorker, OPEN_METER, removeQueue } from './harness/queues.ts'
import { ascending, median } from './harness/statistics.ts'
import { drainOnce } from './harness/workers.ts'

const QUARTER_US = 900_000_000

/** The day on which Berlin's clock goes back, and a day with an hour of nothing. */
const DAYS: readonly { setup: string; startUs: number; hours: number; rate: RateSchedule }[] = [
  {
    setup: 'a day of 25 hours in Berlin, 5/s from 08:00 to 20:00, 1/s else',
    startUs: Date.parse('2026-10-24T22:00:00Z') * 1000,
    hours: 25,
    rate: { schedule: [{ from: '08:00', to: '20:00', rate: '5/s' }, { rate: '1/s' }], timeZone: 'Europe/Berlin' },
  },
  {
    setup: 'a day in New York, closed from 02:00 to 03:30, 37/min to 06:00, 2/s else',
    startUs: Date.parse('2026-06-01T04:00:00Z') * 1000,
    hours: 24,
    rate: {
      schedule: [
        { from: '02:00', to: '03:30', rate: 0 },
        { from: '03:30', to: '06:00', rate: '37/min' },
        { rate: '2/s' },
      ],
      timeZone: 'America/New_York',
    },
  },
]

/** A backlog leaves in virtual time, by the scripts: how many have left by each quarter of an hour, against the integral. */
const day: Figure = {
  name: 'schedules-day',
  title: 'Departures of a backlog by each quarter of an hour, against the exact integral of the rate',
  headings: ALONE,
  run: ({ client }) =>
    inTurn(DAYS, async ({ setup, startUs, hours, rate }): Promise<Row> => {
      const stored = encodeRate(rate)
      const intervalUs = gridIntervalUs(stored[0], stored[1])
      const curve = new ServiceCurve(stored, intervalUs, startUs)
      const unitsBy = (us: number) => Number(curve.at(us) - curve.at(startUs)) / 1024 / intervalUs
      const jobs = Math.ceil(unitsBy(startUs + hours * 4 * QUARTER_US)) + 1
      const arrivals = Array.from(
        { length: jobs },
        (): Arrival => ({ atUs: startUs, cost: 1, priority: 0, delayMs: 0 }),
      )
      const { slotsUs } = await simulate(client, { rate }, arrivals)
      const slots = ascending([...slotsUs].filter((us) => us > 0))
      const apart = Array.from({ length: hours * 4 }, (_, i) => {
        const endUs = startUs + (i + 1) * QUARTER_US
        return slots.filter((us) => us < endUs).length - unitsBy(endUs)
      })
      const most = Math.max(...apart.map(Math.abs))
      return {
        setup: `${setup}: ${jobs} jobs`,
        asked: '<= 1 apart',
        reached: `${most.toFixed(3)} apart`,
        ok: most <= 1 + 1e-6,
        values: { apart },
      }
    }),
}

const MOST_EXTRA_US = 3
/** One rate all the week, in pieces of a day. */
const FLAT: Shape = {
  ...OPEN_METER,
  rate: {
    schedule: [{ days: 'mon,wed,fri,sun', rate: '1000000/s' }, { rate: '1000000/s' }],
    timeZone: 'Europe/Berlin',
  },
}
const SHAPES = { fixed: OPEN_METER, scheduled: FLAT } as const

const cost: Figure = {
  name: 'schedules-cost',
  title: "Redis's time for a job at a rate that follows the clock, over a fixed one: median of interleaved rounds",
  headings: ALONE,
  run: async (bench) => {
    const drain = (way: keyof typeof SHAPES) =>
      drainOnce(bench, 'sluice', { concurrency: 10, jobs: 20_000, shape: SHAPES[way] })
    const measured = await rounds(bench.quick, ['fixed', 'scheduled'], drain)
    const extra = ascending(measured.map(({ fixed, scheduled }) => scheduled.redisUs - fixed.redisUs))
    const middle = median(extra)
    return [
      {
        setup: 'a drained backlog, 10 at once',
        asked: `<= ${MOST_EXTRA_US} µs more`,
        reached: `${middle.toFixed(2)} µs more (${extra[0]?.toFixed(2)} to ${extra.at(-1)?.toFixed(2)})`,
        ok: middle <= MOST_EXTRA_US,
        values: { extra },
      },
    ]
  },
}

const WORKERS = 16
const HORIZON_MS = 50

/** Closed until a full minute at least some seconds from now. */
function opensSoon(): { rate: RateSchedule; opensAtMs: number } {
  const opensAtMs = Math.ceil((Date.now() + 5000) / 60_000) * 60_000
  const clock = (ms: number) => new Date(ms).toISOString().slice(11, 16)
  // An hour around it, which may begin on another day.
  const closed = { to: clock(opensAtMs), from: clock(opensAtMs - 1_800_000), rate: 0 as const }
  const entries = closed.from < closed.to ? [closed] : [{ from: closed.from, rate: 0 as const }]
  return { rate: { schedule: [...entries, { rate: '1000/s' }] }, opensAtMs }
}

async function breakpointRow(bench: Bench): Promise<Row> {
  const { rate, opensAtMs } = opensSoon()
  const queue = await makeQueue(bench, 'sluice', 'schedules', { rate, burst: WORKERS })
  await addJobs(queue, WORKERS)
  let open: () => void = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  const startedMs: number[] = []
  const workers = Array.from({ length: WORKERS }, () => {
    const worker = makeWorker(
      { system: 'sluice', queue: queue.name, redis: bench.redis, concurrency: 1, report: false },
      () => opened,
    )
    ;(worker as unknown as ShapedWorker).on('departed', (_job, { departedAtUs }) => startedMs.push(departedAtUs / 1000))
    return worker
  })
  try {
    await sleep(opensAtMs - Date.now() - 2000)
    const callsOf = async () => {
      const info = await bench.client.info('commandstats')
      return [...info.matchAll(/^cmdstat_(?:fcall|evalsha):calls=(\d+)/gm)].reduce((sum, [, n]) => sum + Number(n), 0)
    }
    const before = await callsOf()
    while (startedMs.length < WORKERS && Date.now() < opensAtMs + 10_000) await sleep(20)
    const calls = (await callsOf()) - before
    const lastMs = Math.max(...startedMs) - opensAtMs
    return {
      setup: `${WORKERS} workers that sleep until the rate is above 0, and as many jobs`,
      asked: `all within ${HORIZON_MS} ms, <= ${WORKERS + 2} calls`,
      reached: `${startedMs.length} within ${lastMs.toFixed(1)} ms, ${calls} calls`,
      ok: startedMs.length === WORKERS && lastMs <= HORIZON_MS && calls <= WORKERS + 2,
      values: { startedMs, calls },
    }
  } finally {
    open()
    await Promise.all(workers.map((worker) => worker.close()))
    await removeQueue(queue)
  }
}

const breakpoint: Figure = {
  name: 'schedules-open',
  title: 'From the opening of a schedule to the last start of workers that slept',
  headings: ALONE,
  run: async (bench) => [await breakpointRow(bench)],
}

export const schedules: readonly Figure[] = [day, cost, breakpoint]
