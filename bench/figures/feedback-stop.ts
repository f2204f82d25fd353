import { setTimeout as sleep } from 'node:timers/promises'
import { FLEET, Outlet } from '../feedback/outlet.ts'
import type { Seen } from '../feedback/protocol.ts'
import type { Figure, Row } from '../figure.ts'
import { quantile } from '../measure/statistics.ts'

/** The default of `horizonMs`. */
const HORIZON_MS = 50
const PAUSES = 40
const QUICK_PAUSES = 3
const RUN_MS = 1000
/** Never has a token: refuses everything, with a Retry-After of a second. */
const NOTHING = { perSecond: 1, burst: 0 }
const RETRY_AFTER_MS = 1000
/** How long all calls are refused; running calls have been answered by then. */
const REFUSE_MS = 500
/** The pause, its jitter, and the extension by the last refused calls. */
const PAUSED_MS = 1500
/** Only round trips this close to the commit count for its round-trip time. */
const AROUND_US = 100_000

/** ms after the first pause was committed. */
interface Stop {
  readonly lastStartMs: number
  readonly lastSlotMs: number
  /** The longest round trip that a process measured around that time. */
  readonly roundTripMs: number
  readonly startsAfter: number
}

function stopOf({ starts, pausesUs, roundTrips }: Seen): Stop {
  const commitUs = Math.min(...pausesUs)
  if (!Number.isFinite(commitUs)) throw new Error('expected a pause, and none came')
  const before = starts.filter(({ startedUs }) => startedUs < commitUs + RETRY_AFTER_MS * 1000)
  const near = roundTrips.filter(({ atUs }) => Math.abs(atUs - commitUs) <= AROUND_US)
  const slots = before.map(({ slotUs = Number.NaN }) => slotUs)
  return {
    lastStartMs: ((before.at(-1)?.startedUs ?? Number.NaN) - commitUs) / 1000,
    lastSlotMs: (Math.max(...slots) - commitUs) / 1000,
    roundTripMs: Math.max(...near.map(({ ms }) => ms)),
    startsAfter: before.filter(({ startedUs }) => startedUs > commitUs).length,
  }
}

async function stopOnce(outlet: Outlet): Promise<{ stop: Stop; roundTripsMs: number[] }> {
  await sleep(RUN_MS)
  await outlet.seen()
  await outlet.server.call('impose', NOTHING)
  await sleep(REFUSE_MS)
  await outlet.server.call('impose', undefined)
  await sleep(PAUSED_MS - REFUSE_MS)
  const seen = await outlet.seen()
  return { stop: stopOf(seen), roundTripsMs: seen.roundTrips.map(({ ms }) => ms) }
}

const QUANTILES = [0.5, 0.99, 1]

function describe(values: readonly number[], digits = 1): string {
  return QUANTILES.map((q) => quantile(values, q).toFixed(digits)).join(', ')
}

function row(stops: readonly Stop[], roundTripsMs: readonly number[]): Row {
  const ok = stops.every(({ lastStartMs, roundTripMs }) => lastStartMs <= HORIZON_MS + roundTripMs)
  const of = (field: keyof Stop, digits?: number) =>
    describe(
      stops.map((stop) => stop[field]),
      digits,
    )
  const cells = [
    `<= ${HORIZON_MS} ms + round trip`,
    `${of('lastStartMs')} ms`,
    ok ? 'yes' : 'NO',
    `${of('lastSlotMs')} ms`,
    of('startsAfter', 0),
    `${of('roundTripMs')} ms`,
    `${describe(roundTripsMs)} ms`,
  ]
  return {
    setup: `one 429, ${stops.length} times`,
    reached: cells.join('; '),
    ok,
    cells,
    values: { stops, roundTripsMs: QUANTILES.map((q) => quantile(roundTripsMs, q)) },
  }
}

export const feedbackStop: Figure = {
  name: 'feedback-stop',
  title:
    `From the commit of the first pause to the last start in the fleet, ${FLEET.processes} × ${FLEET.concurrency} at ` +
    `${FLEET.perSecond}/s, calls of 20 ms: p50, p99, max`,
  headings: ['', 'asked', 'last start', 'ok', 'last slot', 'starts after it', 'round trip then', 'all round trips'],
  run: async (bench) => {
    const pauses = bench.quick ? QUICK_PAUSES : PAUSES
    const seconds = (pauses * (RUN_MS + PAUSED_MS)) / 1000
    const outlet = await Outlet.open(bench, 'pausing', FLEET.perSecond * (seconds + 10), true)
    const all: { stop: Stop; roundTripsMs: number[] }[] = []
    for (let i = 0; i < pauses; i++) all.push(await stopOnce(outlet))
    await outlet.close()
    return [
      row(
        all.map(({ stop }) => stop),
        all.flatMap(({ roundTripsMs }) => roundTripsMs),
      ),
    ]
  },
}
