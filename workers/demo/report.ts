import { achievedPerSecond, allowedWithin, gaps, mostWithin, type Pace, percentile, worstExcess } from './windows.ts'

/** One start of a job, as recorded by its worker. */
export interface Departure {
  /** The job's identity at the receiver: the ledger's key, the local part of the Message-ID. */
  effectId: string
  /** The slot on Redis's clock, microseconds; undefined for workers that have no slots. */
  departureTimeUs?: number
  /** When the processor actually started, microseconds. */
  departedAtUs: number
  latenessUs?: number
}

/** One attempt that reached the receiver. */
export interface Arrival {
  effectId: string
  atUs: number
  /** False when the receiver refused it temporarily. */
  taken: boolean
}

/** Everything that was observed about one queue. */
export interface QueueFacts {
  pace: Pace
  lines: number
  /** The effects of the jobs the queue accepted. */
  accepted: readonly string[]
  /** How often a producer was refused. */
  refused: number
  departures: readonly Departure[]
  arrivals: readonly Arrival[]
  /** Rows at the receiver beyond one for each effect it took; negative when some are missing. */
  surplus?: number
}

export interface QueueReport {
  lines: number
  accepted: number
  refused: number
  departures: number
  retried: number
  delivered: number
  lost: number
  twice: number
  ratePerSecond: number
  achievedPerSecond: number | undefined
  /** Jobs above the bound in the worst window of any length, on departure times; on starts where there are none. */
  excessAtDeparture: number
  mostStartsIn100Ms: number
  gapP50Us: number | undefined
  gapP99Us: number | undefined
  latenessP50Us: number | undefined
  latenessP99Us: number | undefined
  latenessMaxUs: number | undefined
  /** J: how much the time from departure to arrival varied. */
  jitterUs: number
  /** Jobs above `b + (T + J) / I` at the receiver in the worst window of any length. */
  excessAtArrival: number
  mostArrivalsPerSecond: number
  allowedArrivalsPerSecond: number
}

const slotOf = (departure: Departure): number => departure.departureTimeUs ?? departure.departedAtUs

const ascending = (values: readonly number[]): number[] => [...values].sort((a, b) => a - b)

function countEach(ids: Iterable<string>): Map<string, number> {
  const counts = new Map<string, number>()
  for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1)
  return counts
}

/** The time from departure to arrival of each attempt; the nth arrival of an effect belongs to its nth departure. */
export function transits(departures: readonly Departure[], arrivals: readonly Arrival[]): number[] {
  const slots = new Map<string, number[]>()
  for (const departure of [...departures].sort((a, b) => slotOf(a) - slotOf(b))) {
    const known = slots.get(departure.effectId)
    if (known) known.push(slotOf(departure))
    else slots.set(departure.effectId, [slotOf(departure)])
  }
  return [...arrivals]
    .sort((a, b) => a.atUs - b.atUs)
    .flatMap((arrival) => {
      const slot = slots.get(arrival.effectId)?.shift()
      return slot === undefined ? [] : [arrival.atUs - slot]
    })
}

/** What became of each accepted job: delivered once, more than once, or lost. */
function outcome(facts: QueueFacts): Pick<QueueReport, 'delivered' | 'lost' | 'twice'> {
  const held = countEach(facts.arrivals.filter(({ taken }) => taken).map(({ effectId }) => effectId))
  const timesDelivered = facts.accepted.map((effectId) => held.get(effectId) ?? 0)
  const surplus = facts.surplus ?? 0
  return {
    delivered: timesDelivered.filter((times) => times > 0).length - Math.max(0, -surplus),
    lost: timesDelivered.filter((times) => times === 0).length + Math.max(0, -surplus),
    twice: timesDelivered.filter((times) => times > 1).length + Math.max(0, surplus),
  }
}

/** Slots are whole microseconds; where the interval is not, two of them may be up to 1 µs closer. */
const roundingUs = ({ limit, periodUs }: Pace): number => (periodUs % limit === 0 ? 0 : 1)

const oneSecondUs = 1_000_000

/** Computes the figures of the report. */
export function reportOn(facts: QueueFacts): QueueReport {
  const { pace, departures } = facts
  const slots = ascending(departures.map(slotOf))
  const starts = gaps(ascending(departures.map(({ departedAtUs }) => departedAtUs)))
  const lateness = departures.flatMap(({ latenessUs }) => (latenessUs === undefined ? [] : [latenessUs]))
  const arrivals = ascending(facts.arrivals.map(({ atUs }) => atUs))
  const onTheWay = ascending(transits(departures, facts.arrivals))
  const jitterUs = Math.ceil((onTheWay.at(-1) ?? 0) - (onTheWay[0] ?? 0))
  return {
    lines: facts.lines,
    accepted: facts.accepted.length,
    refused: facts.refused,
    departures: departures.length,
    retried: departures.length - new Set(departures.map(({ effectId }) => effectId)).size,
    ...outcome(facts),
    ratePerSecond: (pace.limit * 1e6) / pace.periodUs,
    achievedPerSecond: achievedPerSecond(slots),
    excessAtDeparture: Math.max(0, worstExcess(slots, pace, roundingUs(pace))),
    mostStartsIn100Ms: mostWithin(slots, 100_000),
    gapP50Us: percentile(starts, 50),
    gapP99Us: percentile(starts, 99),
    latenessP50Us: percentile(lateness, 50),
    latenessP99Us: percentile(lateness, 99),
    latenessMaxUs: ascending(lateness).at(-1),
    jitterUs,
    excessAtArrival: Math.max(0, worstExcess(arrivals, pace, jitterUs + roundingUs(pace))),
    mostArrivalsPerSecond: mostWithin(arrivals, oneSecondUs),
    allowedArrivalsPerSecond: allowedWithin(oneSecondUs, pace, jitterUs),
  }
}

/** Why the run counts as failed; empty when every guarantee held. */
export function broken(report: QueueReport): string[] {
  const reasons: [what: string, count: number][] = [
    ['departures above the bound in the worst window', report.excessAtDeparture],
    ['lines that were never accepted', report.lines - report.accepted],
    ['accepted jobs that never arrived', report.lost],
    ['jobs that arrived twice', report.twice],
  ]
  return reasons.filter(([, count]) => count > 0).map(([what, count]) => `${what}: ${count}`)
}

/** Whether jobs left noticeably slower than the rate allows. That breaks no guarantee, but is worth a note. */
export function isSlow({ achievedPerSecond: achieved, ratePerSecond }: QueueReport): boolean {
  return achieved !== undefined && achieved < 0.98 * ratePerSecond
}
