import { describe, expect, test } from 'vitest'
import { caseCount } from '../../support/cases.ts'
import { type Choice, Decisions, decide } from './decisions.ts'
import { checkCharges, Invariants } from './invariants.ts'
import { ReferenceKeys } from './reference.ts'
import { Run, type Source } from './run.ts'
import { ALL_FEATURES, type Features, type Limit, type Shape } from './shape.ts'

const SECOND = 1_000_000
const SEED = Number(process.env.MODEL_SEED ?? 1)
const OPERATIONS = 500

/** The order in which they come to the Lua. */
const STAGES: readonly [string, Features][] = [
  ['lanes', { ...ALL_FEATURES, lines: false, keep: false, places: false }],
  ['lines', { ...ALL_FEATURES, keep: false, places: false }],
  ['keep', { ...ALL_FEATURES, places: false }],
  ['places', ALL_FEATURES],
]

/** What a cell allows stays the same. */
const STEADY: Choice = { hasChanges: false, hasSettles: false, hasOwnValues: false, hasTiers: false }

function story(seed: number, features: Features, choice: Choice): ReferenceKeys {
  const decisions = new Decisions(seed, features, choice)
  const model = new ReferenceKeys(decisions.shape, features, decisions.nowUs)
  const invariants = new Invariants(model, decisions.shape)
  for (let i = 0; i < OPERATIONS; i++) {
    const decision = decisions.next()
    try {
      decisions.note(invariants.around(decision, () => decide(model, decision)))
    } catch (error) {
      throw new Error(`seed ${seed}, operation ${i}, ${JSON.stringify(decision)}: ${(error as Error).message}`)
    }
  }
  return model
}

describe.each(STAGES)('with %s', (_, features) => {
  test('a job leaves with all charges or none, no place is taken twice, and no job waits that may go', () => {
    for (let i = 0; i < caseCount(20, 'KEYS_STORIES'); i++) story(SEED + i, features, {})
  })

  test('no cell lets more pass than its limit', () => {
    for (let i = 0; i < caseCount(20, 'KEYS_STORIES'); i++) {
      const { cells, queueCells } = story(SEED + i, features, STEADY)
      for (const cell of [...cells, ...queueCells]) checkCharges(cell)
    }
  })
})

/** A bucket for each value of a key of its own name. */
function rateBy(name: string, limit: number, burst: number): Limit {
  return { name, by: name, rate: { limit, period: 1000 }, burst }
}

/**
 * Goyal, Vin, Cheng 1996: of two groups that always wait, the units that they got by their weights differ by at most one job
 * of each, in any time.
 */
describe.each([1, 2, 3])('groups share within the bound of start-time fair queueing (%i)', (seed) => {
  const costs = [1, 2, 3, 5]
  const weights = [1, 2, 3, 0.5]
  const groups = costs.map((cost, i) => ({ group: `g${i}`, cost, weight: weights[(i + seed) % 4] as number }))

  function deviation(shape: Shape, keys: Readonly<Record<string, string>>): number[] {
    const model = new ReferenceKeys(shape)
    for (const { group, weight } of groups) model.setGroup(group, { weight }, 0)
    const sources = groups.flatMap(({ group, cost }, i) =>
      Array.from({ length: 1 + ((i * seed) % 3) }, (_, lane): Source => {
        return { name: group, group, cost, keys: { ...keys, host: `${lane}` } }
      }),
    )
    const run = new Run(model, sources)
    const bounds: number[] = []
    const extremes = new Map<string, [number, number]>()
    for (let i = 1; i <= 400; i++) {
      run.until((i * SECOND) / 8)
      for (const f of groups)
        for (const g of groups) {
          if (f.group >= g.group) continue
          const difference = (run.started(f.group) * f.cost) / f.weight - (run.started(g.group) * g.cost) / g.weight
          const [least, most] = extremes.get(f.group + g.group) ?? [0, 0]
          extremes.set(f.group + g.group, [Math.min(least, difference), Math.max(most, difference)])
        }
    }
    for (const f of groups)
      for (const g of groups) {
        const range = extremes.get(f.group + g.group)
        if (range) bounds.push((range[1] - range[0]) / (f.cost / f.weight + g.cost / g.weight))
      }
    expect(run.allStarted).toBeGreaterThan(100)
    return bounds
  }

  const hosts = rateBy('host', 1_000_000, 1000)
  test('of the queue', () => {
    const bounds = deviation({ rate: [20, 1000], burst: 5, limits: [hosts] }, {})
    expect(Math.max(...bounds)).toBeLessThanOrEqual(2)
  })
  test('of a contended cell', () => {
    const bounds = deviation({ limits: [hosts, rateBy('model', 20, 5)] }, { model: 'x' })
    expect(Math.max(...bounds)).toBeLessThanOrEqual(2)
  })
})

test('lanes of a group take turns', () => {
  const lanes = Array.from({ length: 7 }, (_, i) => ({ name: `l${i}`, group: 'a', keys: { host: `${i}` } }))
  const shape: Shape = { rate: [10, 1000], limits: [rateBy('host', 1_000_000, 1000)] }
  const run = new Run(new ReferenceKeys(shape), [...lanes, { name: 'b', group: 'b' }])
  for (let i = 1; i <= 100; i++) {
    run.until((i * SECOND) / 10)
    const started = lanes.map(({ name }) => run.started(name))
    expect(Math.max(...started) - Math.min(...started)).toBeLessThanOrEqual(1)
  }
})

test('of many lanes on one key, one is tried and one released for a departure', () => {
  const model = new ReferenceKeys({ limits: [rateBy('model', 5, 1), rateBy('host', 1_000_000, 1000)] })
  const lanes = Array.from({ length: 1000 }, (_, i) => ({
    ...{ name: `g${i % 20}`, group: `g${i % 20}`, keys: { model: 'x', host: `${i}` }, backlog: 2 },
  }))
  const run = new Run(model, lanes)
  // Everything is parked at once, by as many calls as it takes.
  run.until(0)
  const before = { ...model.counts, started: run.allStarted }
  run.until(40 * SECOND)
  const departures = run.allStarted - before.started
  expect(departures).toBe(200)
  // Each departure is followed by a try of the next job of its lane.
  expect(model.counts.tries - before.tries).toBeLessThanOrEqual(2 * departures + 1)
  expect(model.counts.releases - before.releases).toBeLessThanOrEqual(departures + 1)
})
