import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { gridIntervalUs, intervalUs, parseRate } from '../../src/rate.ts'
import {
  type BucketShape,
  type BucketState,
  charge,
  newState,
  reshaped,
  type Ticks,
  ticksOf,
} from '../../src/testing/bucket-state.ts'
import { expectPaced, ReferenceBucket, type ReferenceGrant, type Start } from '../../src/testing/index.ts'
import { caseCount } from '../support/cases.ts'

const START_US = 1_764_000_000_000_017
const RUNS = { numRuns: caseCount(2000) }

const rate = fc
  .tuple(fc.integer({ min: 1, max: 5000 }), fc.constantFrom(1000, 60_000, 7, 900_000))
  .map(([limit, period]) => ({ limit, period }))
const shape = fc.record({ rate, burst: fc.integer({ min: 1, max: 20 }) })
const cost = fc.oneof(
  fc.constant(1),
  fc.integer({ min: 1, max: 30 }),
  fc.integer({ min: 1, max: 999 }).map((n) => n / 100),
)
/** Time until the next call, in intervals; the horizon of the request; and its costs. */
const call = fc.record({
  wait: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 5, noNaN: true }), fc.constant(100)),
  horizonUs: fc.constantFrom(0, 50_000, 1_000_000),
  costs: fc.array(cost, { minLength: 1, maxLength: 6 }),
})
const calls = fc.array(call, { minLength: 1, maxLength: 40 })

function intervalOf(bucket: { rate: { limit: number; period: number } }): number {
  return intervalUs(parseRate(bucket.rate))
}

describe('whatever is asked for, and however late', () => {
  test('no window holds more than the bound, dearer jobs than the burst included', () => {
    fc.assert(
      fc.property(shape, calls, (limits, asked) => {
        const bucket = new ReferenceBucket(limits, START_US)
        const starts: Start[] = []
        for (const { wait, horizonUs, costs } of asked) {
          bucket.advance(Math.round(wait * intervalOf(limits)))
          const { slotsUs } = bucket.grant(costs, horizonUs)
          starts.push(...slotsUs.map((departureTimeUs, i) => ({ departureTimeUs, cost: costs[i] as number })))
        }
        expectPaced(starts, limits)
      }),
      RUNS,
    )
  })

  test('no slot lies beyond the horizon, before now, or before the slot granted last', () => {
    fc.assert(
      fc.property(shape, calls, (limits, asked) => {
        const bucket = new ReferenceBucket(limits, START_US)
        let lastUs = 0
        for (const { wait, horizonUs, costs } of asked) {
          bucket.advance(Math.round(wait * intervalOf(limits)))
          for (const slotUs of bucket.grant(costs, horizonUs).slotsUs) {
            expect(slotUs).toBeGreaterThanOrEqual(Math.max(bucket.nowUs, lastUs))
            expect(slotUs).toBeLessThanOrEqual(bucket.nowUs + horizonUs)
            lastUs = slotUs
          }
        }
      }),
      RUNS,
    )
  })

  test('jobs that are late and go back let no more start than the bound', () => {
    const late = fc.array(fc.tuple(call, fc.integer({ min: 0, max: 6 }), fc.nat(3)), {
      minLength: 1,
      maxLength: 40,
    })
    fc.assert(
      fc.property(shape, late, (limits, asked) => {
        const bucket = new ReferenceBucket(limits, START_US)
        const held: { grant: ReferenceGrant; kept: number }[] = []
        for (const [{ wait, horizonUs, costs }, back, ago] of asked) {
          bucket.advance(Math.round(wait * intervalOf(limits)))
          const grant = bucket.grant(costs, horizonUs)
          held.push({ grant, kept: grant.slotsUs.length })
          // Of any grant: what is not the last slot is lost, and never started.
          const one = held.at(-1 - ago)
          const count = Math.min(back, one?.kept ?? 0)
          if (!one || count === 0) continue
          const { slotsUs, costs: charged } = one.grant
          bucket.takeBack(
            { ...one.grant, slotsUs: slotsUs.slice(0, one.kept), costs: charged.slice(0, one.kept) },
            count,
          )
          one.kept -= count
        }
        const kept = held.flatMap(({ grant, kept: count }) =>
          grant.slotsUs
            .slice(0, count)
            .map((departureTimeUs, i) => ({ departureTimeUs, cost: grant.costs[i] as number })),
        )
        expectPaced(
          kept.sort((one, other) => one.departureTimeUs - other.departureTimeUs),
          limits,
        )
      }),
      RUNS,
    )
  })

  test('a slot that was given back is granted once more, never twice', () => {
    const given = fc.array(fc.tuple(call, fc.integer({ min: 0, max: 6 }), fc.boolean()), {
      minLength: 1,
      maxLength: 40,
    })
    fc.assert(
      fc.property(shape, given, (limits, asked) => {
        const bucket = new ReferenceBucket(limits, START_US)
        const kept: Start[] = []
        let older = bucket.grant([])
        for (const [{ wait, horizonUs, costs }, back, ofOlder] of asked) {
          bucket.advance(Math.round(wait * intervalOf(limits)))
          const grant = bucket.grant(costs, horizonUs)
          const count = Math.min(back, grant.slotsUs.length)
          // A refund of an older grant is refused, so its jobs count as started here.
          if (ofOlder && grant.slotsUs.length > 0) expect(bucket.refund(older)).toBeUndefined()
          const left = bucket.refund(grant, count) ?? grant
          kept.push(...left.slotsUs.map((departureTimeUs, i) => ({ departureTimeUs, cost: costs[i] as number })))
          older = left
        }
        expectPaced(kept, limits)
      }),
      RUNS,
    )
  })
})

test('with a backlog every slot is used, however late within the horizon it is asked for', () => {
  const lateness = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 100, maxLength: 200 })
  fc.assert(
    fc.property(rate, lateness, (drainRate, late) => {
      const horizonUs = 50_000
      const bucket = new ReferenceBucket({ rate: drainRate }, START_US)
      const slots: number[] = []
      for (const part of late) {
        const earliest = Math.max(bucket.nowUs, bucket.nextSlotUs() - horizonUs)
        const latest = Math.max(earliest, bucket.nextSlotUs() - 1)
        bucket.advance(Math.round(earliest + part * (latest - earliest)) - bucket.nowUs)
        slots.push(bucket.depart(1, horizonUs) as number)
      }
      const took = (slots.at(-1) as number) - (slots[0] as number)
      const ideal = (slots.length - 1) * intervalOf({ rate: drainRate })
      // The interval is rounded up to 1/1024 µs, and a departure time to whole µs.
      expect(took).toBeGreaterThanOrEqual(ideal - 1)
      expect(took).toBeLessThanOrEqual(ideal + slots.length / 1024 + 1)
    }),
    { numRuns: caseCount(500) },
  )
})

// A job that costs more than a lowered burst leaves when the smaller bucket is empty, which drops the level of the
// larger one.
test('over changes of rate and burst no window holds more than the highest burst and what the rates let drain', () => {
  const change = fc.tuple(call, fc.option(shape))
  fc.assert(
    fc.property(shape, fc.array(change, { minLength: 1, maxLength: 25 }), (limits, changes) => {
      const bucket = new ReferenceBucket(limits, START_US)
      const starts: { us: number; cost: number }[] = []
      // A new rate applies to slots not granted yet: from the last granted one on.
      const rates = [{ fromUs: START_US, intervalUs: intervalOf(limits) }]
      let [lowest, highest] = [limits.burst, limits.burst]
      let lastUs = START_US
      for (const [{ wait, horizonUs, costs }, next] of changes) {
        bucket.advance(Math.round(wait * (rates.at(-1)?.intervalUs as number)))
        if (next) {
          bucket.reshape(next)
          lowest = Math.min(lowest, next.burst)
          highest = Math.max(highest, next.burst)
          rates.push({ fromUs: Math.max(bucket.nowUs, lastUs), intervalUs: intervalOf(next) })
        }
        const { slotsUs } = bucket.grant(costs, horizonUs)
        starts.push(...slotsUs.map((us, i) => ({ us, cost: costs[i] as number })))
        lastUs = slotsUs.at(-1) ?? lastUs
      }
      const beyond = Math.max(0, ...starts.map(({ cost: units }) => units - lowest))
      expect(worstExcess(starts, rates)).toBeLessThanOrEqual(highest + beyond + tolerance(rates))
    }),
    RUNS,
  )
})

test('over changes of rate and burst a job that goes back leaves as much owed as if it had never been granted', () => {
  const change = fc.tuple(call, fc.integer({ min: 0, max: 6 }), fc.option(shape))
  fc.assert(
    fc.property(shape, fc.array(change, { minLength: 1, maxLength: 25 }), (limits, changes) => {
      const bucket = new ReferenceBucket(limits, START_US)
      // It exists before the first change.
      bucket.grant([])
      bucket.advance(1)
      const seen: Seen[] = []
      const rates = [{ fromUs: START_US, intervalUs: intervalOf(limits) }]
      const held: Departed[] = []
      for (const [{ wait, horizonUs, costs }, back, next] of changes) {
        bucket.advance(Math.round(wait * (rates.at(-1)?.intervalUs as number)))
        if (next) {
          seen.push({ shape: bucketOf(next), atUs: bucket.nowUs, last: stateOf(bucket).last })
          bucket.reshape(next)
          rates.push({ fromUs: bucket.nowUs, intervalUs: intervalOf(next) })
        }
        for (const units of costs) {
          const grant = bucket.grant([units], horizonUs)
          if (grant.slotsUs.length === 0) break
          const departed = { grant, slot: stateOf(bucket).last, cost: units, isBack: false }
          seen.push(departed)
          held.push(departed)
        }
        for (const departed of held.splice(Math.max(0, held.length - back))) {
          bucket.takeBack(departed.grant)
          departed.isBack = true
        }
        const { tat, intervalUs: interval } = stateOf(bucket)
        const least = owed(newState(ticksOf(START_US), START_US, bucketOf(limits)), seen)
        expect(Number(tat - least) / 1024 / interval).toBeGreaterThanOrEqual(-tolerance(rates))
      }
    }),
    RUNS,
  )
})

test('when the state is lost with slots granted ahead, holding keeps every window within the bound', () => {
  const loss = fc.tuple(call, fc.constantFrom('none', 'lost', 'emptied', 'restarted'))
  fc.assert(
    fc.property(shape, fc.array(loss, { minLength: 1, maxLength: 25 }), (limits, losses) => {
      const bucket = new ReferenceBucket({ ...limits, horizonMs: 1000 }, START_US)
      const starts: Start[] = []
      for (const [{ wait, horizonUs, costs }, what] of losses) {
        bucket.advance(Math.round(wait * intervalOf(limits)))
        if (what === 'lost') bucket.loseState()
        if (what === 'emptied') bucket.restore()
        if (what === 'restarted') bucket.restart()
        const paid = costs.map((units) => Math.min(units, limits.burst))
        const { slotsUs } = bucket.grant(paid, horizonUs)
        starts.push(...slotsUs.map((departureTimeUs, i) => ({ departureTimeUs, cost: paid[i] as number })))
      }
      expectPaced(starts, limits)
    }),
    RUNS,
  )
})

test('a clock that is set back lets nothing through early', () => {
  const step = fc.tuple(call, fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 100_000_000 })))
  fc.assert(
    fc.property(shape, fc.array(step, { minLength: 1, maxLength: 25 }), (limits, steps) => {
      const bucket = new ReferenceBucket(limits, START_US)
      const starts: Start[] = []
      let behindUs = 0
      for (const [{ wait, horizonUs, costs }, backUs] of steps) {
        bucket.advance(Math.round(wait * intervalOf(limits)) - backUs)
        behindUs += backUs
        const { slotsUs } = bucket.grant(costs, horizonUs)
        starts.push(...slotsUs.map((us, i) => ({ departureTimeUs: us + behindUs, cost: costs[i] as number })))
      }
      expectPaced(starts, limits)
    }),
    RUNS,
  )
})

test('a clock that is set back holds nothing up', () => {
  const bucket = new ReferenceBucket({ rate: '50/s', burst: 2 }, START_US)
  bucket.grant([1, 1, 1], 20_000)
  bucket.advance(-3_600_000_000)
  expect(bucket.nextSlotUs() - bucket.nowUs).toBe(40_000)
  expect(bucket.depart(1, 40_000)).toBe(bucket.nowUs + 40_000)
})

test('a hold is a wait and one bucket of debt, also when the rate is lowered during it', () => {
  const bucket = new ReferenceBucket({ rate: '5000/s', burst: 2 }, START_US)
  bucket.depart()
  bucket.restart()
  expect(bucket.depart()).toBeUndefined()
  bucket.reshape({ rate: '1/min' })
  expect(bucket.nextSlotUs() - bucket.nowUs).toBe(50_000 + 60_000_000)
})

function stateOf(bucket: ReferenceBucket): BucketState {
  return bucket.state as BucketState
}

/** A job, with its exact slot. */
interface Departed {
  readonly grant: ReferenceGrant
  readonly slot: Ticks
  readonly cost: number
  isBack: boolean
}

type Seen = Departed | { readonly shape: BucketShape; readonly atUs: number; readonly last: Ticks }

/** When the bucket would be empty if it had seen only the jobs that did not go back. */
function owed(start: BucketState, seen: readonly Seen[]): Ticks {
  let state = start
  for (const one of seen) {
    if ('shape' in one) state = reshaped({ ...state, last: one.last }, one.shape, ticksOf(one.atUs))
    else if (!one.isBack) state = charge(state, one.cost, one.slot)
  }
  return state.tat
}

function bucketOf({ rate, burst }: { rate: { limit: number; period: number }; burst: number }): BucketShape {
  const ofBucket = { mode: 'enforce', onStateLoss: 'hold', horizonUs: 0 } as const
  return { intervalUs: gridIntervalUs(rate.limit, rate.period), burst, ...ofBucket }
}

type RateFrom = { readonly fromUs: number; readonly intervalUs: number }

/** The largest excess of a window over what the rates drain in it, units of cost. */
function worstExcess(starts: readonly { us: number; cost: number }[], rates: readonly RateFrom[]): number {
  let worst = 0
  for (let first = 0; first < starts.length; first++) {
    let sum = 0
    for (const { us, cost: units } of starts.slice(first)) {
      sum += units
      worst = Math.max(worst, sum - drained(rates, (starts[first] as { us: number }).us, us))
    }
  }
  return worst
}

function drained(rates: readonly RateFrom[], fromUs: number, toUs: number): number {
  return rates.reduce((sum, { fromUs: since, intervalUs: interval }, i) => {
    const until = rates[i + 1]?.fromUs ?? Number.POSITIVE_INFINITY
    return sum + Math.max(0, Math.min(toUs, until) - Math.max(fromUs, since)) / interval
  }, 0)
}

// A departure time is a whole µs: a window may look up to 1 µs shorter, and so may a stretch before a change.
function tolerance(rates: readonly RateFrom[]): number {
  return rates.reduce((sum, { intervalUs: interval }) => sum + 1 / interval, 0) + 1e-9
}
