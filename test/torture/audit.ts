import { type WorstWindow, worstWindow } from '../faults/support/bound.ts'

/** A rate, per second, and when it was set: Redis took it at some time between the two. */
export interface RateChange {
  readonly perSecond: number
  readonly begunUs: number
  readonly doneUs: number
  /** How far ahead slots had been granted at most, which leave by the rate before. Default: the shape's horizon. */
  readonly aheadUs?: number
}

/** What is known of the shape of the queue. */
export interface Terms {
  readonly burst: number
  readonly capacity: number
  readonly horizonMs: number
  /** In their order; the first one was in force from the beginning. */
  readonly rates: readonly RateChange[]
  /** Jobs that were in Redis when it lost its data, and were not there afterwards. */
  readonly forgotten: ReadonlySet<string>
  /** Jobs that were in a replica which lagged and became the master, as they had been before the lag. */
  readonly setBack: ReadonlySet<string>
}

/** What came of all jobs; the first four in the words of Jepsen's reports. */
export interface Verdict {
  /** Accepted, and never run to its end, though Redis did not lose it. */
  readonly lost: readonly string[]
  /** The same of those that Redis lost with its data. */
  readonly forgotten: readonly string[]
  /** Started more than once. */
  readonly duplicated: readonly string[]
  /** Run though it was refused, or by nobody's order. */
  readonly unexpected: readonly string[]
  /** Run, though its producer never learned whether it was stored. */
  readonly recovered: readonly string[]
  readonly accepted: number
  /** Tried, without an answer that says what came of it. */
  readonly unsure: number
  /** Started again though no lock was lost, and no replica that knew nothing of the start became the master. */
  readonly needless: readonly string[]
  /** Accepted behind more jobs than the queue may hold. */
  readonly overCapacity: readonly string[]
  /** The window that is most above what the rates let through; its excess is 0 or less when the bound holds. */
  readonly worst: WorstWindow
  readonly latestMs: number
  /** What no one caught, and jobs that failed. */
  readonly mishaps: readonly string[]
}

interface Start {
  readonly id: string
  readonly departureTimeUs: number
  readonly latenessUs: number
  /** How often its lock had been lost before. */
  readonly stalls: number
}

/** @param lines what producers and workers wrote, in any order of the files but each file in its own */
export function audit(lines: readonly string[], terms: Terms): Verdict {
  const { burst, capacity, horizonMs, rates, forgotten, setBack } = terms
  const words = lines.map((line) => line.split(' '))
  const of = (kind: string) => words.filter(([first]) => first === kind)
  const idsOf = (kind: string) => new Set(of(kind).map(([, id = '']) => id))
  const [tried, accepted, refused, ended] = ['tried', 'accepted', 'refused', 'ended'].map(idsOf) as Set<string>[]
  const starts = of('started')
    .map(startOf)
    .toSorted((a, b) => a.departureTimeUs - b.departureTimeUs)
  const unsure = [...tried!].filter((id) => !accepted!.has(id) && !refused!.has(id))
  const duplicated = new Set<string>()
  const needless = new Set<string>()
  const times = new Map<string, number>()
  for (const { id, stalls } of starts) {
    const before = times.get(id) ?? 0
    if (before > 0) duplicated.add(id)
    if (stalls < before && !setBack.has(id)) needless.add(id)
    times.set(id, before + 1)
  }
  const slots = starts.map(({ departureTimeUs }) => departureTimeUs)
  const unended = [...accepted!].filter((id) => !ended!.has(id))
  return {
    lost: unended.filter((id) => !forgotten.has(id)),
    forgotten: unended.filter((id) => forgotten.has(id)),
    duplicated: [...duplicated],
    unexpected: [...times.keys()].filter((id) => !tried!.has(id) || refused!.has(id)),
    recovered: unsure.filter((id) => times.has(id)),
    accepted: accepted!.size,
    unsure: unsure.length,
    needless: [...needless],
    overCapacity: of('accepted').flatMap(([, id = '', position]) => (Number(position) < capacity ? [] : id)),
    worst: worstWindow(slots, burst, drainedBy(rates, horizonMs)),
    latestMs: starts.reduce((most, { latenessUs }) => Math.max(most, latenessUs / 1000), 0),
    mishaps: [...of('unhandled'), ...of('failed')].map((told) => told.join(' ')),
  }
}

function startOf([, id = '', departureTimeUs, latenessUs, stalls]: readonly string[]): Start {
  return { id, departureTimeUs: Number(departureTimeUs), latenessUs: Number(latenessUs), stalls: Number(stalls) }
}

/**
 * How much the rates let through until a time, at most. While a change is under way either rate may be in force, and what
 * was granted ahead leaves by the old one.
 */
function drainedBy(rates: readonly RateChange[], horizonMs: number): (timeUs: number) => number {
  const spans = rates.map(({ perSecond, begunUs }, i) => ({
    perSecond,
    fromUs: i === 0 ? Number.NEGATIVE_INFINITY : begunUs,
    untilUs: (rates[i + 1]?.doneUs ?? Number.POSITIVE_INFINITY) + (rates[i + 1]?.aheadUs ?? horizonMs * 1000),
  }))
  const edges = spans.flatMap(({ fromUs, untilUs }) => [fromUs, untilUs]).filter(Number.isFinite)
  const sorted = [...new Set(edges)].toSorted((a, b) => a - b)
  const first = sorted[0] ?? 0
  const rateAt = (timeUs: number) =>
    Math.max(...spans.map(({ perSecond, fromUs, untilUs }) => (timeUs >= fromUs && timeUs < untilUs ? perSecond : 0)))
  return (timeUs) => {
    let drained = 0
    let fromUs = Math.min(first, timeUs)
    if (timeUs < first) return ((timeUs - first) * rateAt(timeUs)) / 1e6
    for (const edge of [...sorted.filter((one) => one > first && one < timeUs), timeUs]) {
      drained += ((edge - fromUs) * rateAt(fromUs)) / 1e6
      fromUs = edge
    }
    return drained
  }
}
