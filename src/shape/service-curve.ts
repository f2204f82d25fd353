import type { StoredRate } from '../limits/schedule.ts'
import { gridIntervalUs } from '../rate.ts'

const WEEK_US = 604_800_000_000
/** 126 years: differences of times within it are exact. */
const FOREVER_US = 4e15
/** 1 January 1970 was a Thursday. */
const MONDAY_US = 4 * 86_400_000_000

interface Piece {
  readonly fromUs: number
  /** Service until then, ticks. */
  readonly served: bigint
  /** As a part of the fastest rate. */
  readonly speed: number
}

/**
 * The integral of a rate over time, in ticks of 1/1024 µs at the fastest rate of its schedule, as in
 * `lua/meter/service.lua`: at a fixed rate, the time itself. Times are µs since 1970 on Redis's clock.
 */
export class ServiceCurve {
  readonly #pieceAt: (us: number) => Omit<Piece, 'served'> & { readonly toUs: number }
  /** The last piece ends where the next one begins. */
  readonly #pieces: Piece[] = []
  #endUs: number
  #endServed: bigint

  /** @param intervalUs current µs per unit: nothing is served faster */
  constructor(rate: StoredRate, intervalUs: number, startUs: number) {
    this.#pieceAt = piecesOf(rate, intervalUs)
    this.#endUs = this.#pieceAt(startUs).fromUs
    this.#endServed = BigInt(this.#endUs) * 1024n
  }

  at(us: number): bigint {
    while (this.#endUs <= us) this.#extend()
    for (let first = this.#pieces[0]; first === undefined || us < first.fromUs; first = this.#pieces[0]) {
      const { fromUs, speed, toUs } = this.#pieceAt((first?.fromUs ?? this.#endUs) - 1)
      this.#pieces.unshift({ fromUs, speed, served: (first?.served ?? this.#endServed) - ticks(toUs - fromUs, speed) })
    }
    return servedIn(this.#pieces[lastUpTo(this.#pieces, ({ fromUs }) => fromUs <= us)] as Piece, us)
  }

  /** The first whole µs at which more than `served` is served. */
  when(served: bigint): number {
    while (this.#endServed <= served) this.#extend()
    while (this.#pieces[0] === undefined || served < this.#pieces[0].served) {
      this.at((this.#pieces[0]?.fromUs ?? this.#endUs) - 1)
    }
    const piece = this.#pieces[lastUpTo(this.#pieces, (one) => one.served <= served)] as Piece
    if (piece.speed === 1) return piece.fromUs + Number(-((piece.served - served) >> 10n))
    const us = Math.ceil(piece.fromUs + Number(served - piece.served) / 1024 / piece.speed)
    return servedIn(piece, us) < served ? us + 1 : us
  }

  /**
   * Speeds, as parts of the fastest rate, between two times, with the beginning of each; the first entry is for
   * `fromUs`.
   */
  speeds(fromUs: number, toUs: number): readonly (readonly [us: number, speed: number])[] {
    const steps: (readonly [number, number])[] = []
    for (let us = fromUs; us < toUs; ) {
      const { speed, toUs: endUs } = this.#pieceAt(us)
      if (speed !== steps.at(-1)?.[1]) steps.push([us, speed])
      us = endUs
    }
    return steps
  }

  #extend(): void {
    const piece = { ...this.#pieceAt(this.#endUs), served: this.#endServed }
    this.#pieces.push(piece)
    this.#endServed = servedIn(piece, piece.toUs)
    this.#endUs = piece.toUs
  }
}

function servedIn({ fromUs, served, speed }: Piece, us: number): bigint {
  return served + ticks(us - fromUs, speed)
}

function ticks(us: number, speed: number): bigint {
  return speed === 1 ? BigInt(us) * 1024n : BigInt(Math.floor(us * speed * 1024))
}

/** The index of the last element that passes, in a list whose first ones pass. */
function lastUpTo(pieces: readonly Piece[], passes: (piece: Piece) => boolean): number {
  let [low, high] = [0, pieces.length]
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if (passes(pieces[middle] as Piece)) low = middle
    else high = middle
  }
  return low
}

function piecesOf([, , schedule]: StoredRate, intervalUs: number) {
  const forever = { fromUs: -FOREVER_US, toUs: FOREVER_US, speed: 1 }
  if (!schedule) return () => forever
  const [, entries, week, zone] = schedule
  const speeds = entries.map(([, , , limit, periodMs]) =>
    limit === 0 ? 0 : Math.min(1, intervalUs / gridIntervalUs(limit, periodMs)),
  )
  return (us: number) => {
    let at = 0
    while (at + 2 < zone.length && (zone[at + 2] as number) * 1e6 <= us) at += 2
    const sinceMonday = us + (zone[at + 1] as number) * 1e6 - MONDAY_US
    const inWeek = ((sinceMonday % WEEK_US) + WEEK_US) % WEEK_US
    let i = week.length - 2
    while ((week[i] as number) * 6e7 > inWeek) i -= 2
    const [from, to] = [(week[i] as number) * 6e7, i + 2 < week.length ? (week[i + 2] as number) * 6e7 : WEEK_US]
    const zoneEndUs = at + 2 < zone.length ? (zone[at + 2] as number) * 1e6 : Number.POSITIVE_INFINITY
    return {
      fromUs: Math.max(us - inWeek + from, at > 0 ? (zone[at] as number) * 1e6 : Number.NEGATIVE_INFINITY),
      toUs: Math.min(us - inWeek + to, zoneEndUs),
      speed: speeds[(week[i + 1] as number) - 1] as number,
    }
  }
}
