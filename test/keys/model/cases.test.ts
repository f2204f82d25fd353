// The cases by which the design was chosen, each against what it would be otherwise.

import { describe, expect, test } from 'vitest'
import { ReferenceKeys } from './reference.ts'
import { Run, type Source } from './run.ts'
import { ALL_FEATURES, type Features, type Limit, type Shape } from './shape.ts'

const SECOND = 1_000_000

/** A bucket of one unit for each value of a key of its own name. */
function rateBy(name: string, limit: number, periodMs: number, burst = 1): Limit {
  return { name, by: name, rate: { limit, period: periodMs }, burst }
}

function runOf(shape: Shape, sources: readonly Source[], features: Features = ALL_FEATURES): Run {
  return new Run(new ReferenceKeys(shape, features), sources)
}

test('a group gets no more by spreading over lanes', () => {
  const spread = Array.from({ length: 40 }, (_, i) => ({ name: `b${i}`, group: 'b', keys: { host: `${i}` } }))
  const ten = Array.from({ length: 10 }, (_, i) => ({ name: `c${i}`, group: 'c', keys: { host: `${i}` } }))
  const shape: Shape = { rate: [100, 1000], limits: [rateBy('host', 1_000_000, 1000)] }
  const model = new ReferenceKeys(shape)
  model.setGroup('c', { weight: 2 }, 0)
  const run = new Run(model, [{ name: 'a', group: 'a' }, ...spread, ...ten]).until(10 * SECOND)
  const sum = (sources: readonly { name: string }[]) => sources.reduce((all, { name }) => all + run.started(name), 0)
  expect(run.started('a') / run.allStarted).toBeCloseTo(0.25, 1.7)
  expect(sum(spread) / run.allStarted).toBeCloseTo(0.25, 1.7)
  expect(sum(ten) / run.allStarted).toBeCloseTo(0.5, 1.7)
  const started = ten.map(({ name }) => run.started(name))
  expect(Math.max(...started) - Math.min(...started)).toBeLessThanOrEqual(1)
})

test('the units of a key are shared between groups, however many lanes and other jobs they have', () => {
  const model = { model: 'x' }
  const lanes = Array.from({ length: 25 }, (_, i) => ({
    ...{ name: `a${i}`, group: 'a', keys: { ...model, host: `${i}` } },
  }))
  const shape: Shape = {
    ...{ rate: [200, 1000] },
    limits: [rateBy('model', 10, 1000), { ...rateBy('host', 1_000_000, 1000), by: 'host' }, rateBy('other', 100, 1000)],
  }
  const run = runOf(shape, [
    ...lanes,
    ...[
      { name: 'other', group: 'a', keys: { other: 'y' } },
      { name: 'b', group: 'b', keys: model },
    ],
  ]).until(30 * SECOND)
  const started = lanes.map(({ name }) => run.started(name))
  expect(Math.abs(started.reduce((sum, one) => sum + one) - run.started('b'))).toBeLessThanOrEqual(2)
  expect(run.started('b')).toBeGreaterThanOrEqual(149)
  expect(Math.max(...started) - Math.min(...started)).toBeLessThanOrEqual(1)
})

test('a held key holds no other lane of its group', () => {
  const shape: Shape = { rate: [100, 1000], limits: [rateBy('model', 1, 60_000), rateBy('host', 1_000_000, 1000)] }
  const held = Array.from({ length: 300 }, (_, i) => ({
    name: `x${i}`,
    group: 'a',
    keys: { model: 'x', host: `${i}` },
  }))
  const others = Array.from({ length: 5 }, (_, i) => ({ name: `b${i}`, group: `b${i}` }))
  const free = { name: 'free', group: 'a', fromUs: 10 * SECOND, backlog: 1 }
  const run = runOf(shape, [...held, ...others, free])
  // Until here everything of the key is parked.
  run.until(10 * SECOND - 1)
  const before = run.allStarted
  const waited: number[] = []
  run.until(11 * SECOND, () => {
    if (run.started('free') > waited.length) waited.push(run.allStarted - before)
  })
  expect(waited[0]).toBeLessThanOrEqual(6)
})

test('a lane of a group that is found full leaves its key to others at once', () => {
  const model = new ReferenceKeys({ limits: [rateBy('model', 1, 1000)] })
  model.setGroup('a', { concurrency: 1 }, 0)
  const add = (id: string, group: string, keys: Readonly<Record<string, string>>) =>
    model.add({ id, group, keys, cost: 1, priority: 0 }, 0)
  const leave = (nowUs: number) => model.take(nowUs).departures.map(({ id }) => id)
  add('first', 'c', { model: 'x' })
  expect(leave(0)).toEqual(['first'])
  add('held', 'a', { model: 'x' })
  add('next', 'b', { model: 'x' })
  expect(leave(0)).toEqual([])
  add('running', 'a', {})
  expect(leave(0)).toEqual(['running'])
  expect(leave(SECOND)).toEqual(['next'])
})

describe('a cheap job does not pass an expensive one of its key', () => {
  const shape: Shape = { limits: [rateBy('model', 1, 1000, 10)] }
  const keys = { model: 'x' }
  const cheap = Array.from({ length: 5 }, (_, i) => ({ name: `g${i}`, group: `g${i}`, keys }))
  test('each group gets its share of the units, and none is lost', () => {
    const run = runOf(shape, [{ name: 'expensive', group: 'x', keys, cost: 10 }, ...cheap]).until(600 * SECOND)
    const units = [10 * run.started('expensive'), ...cheap.map(({ name }) => run.started(name))]
    expect(units.reduce((sum, one) => sum + one)).toBeGreaterThanOrEqual(600)
    expect(Math.max(...units) - Math.min(...units)).toBeLessThanOrEqual(10)
  })
  test('without lines it would get a tenth', () => {
    const features = { ...ALL_FEATURES, lines: false, keep: false, places: false }
    const run = runOf(shape, [{ name: 'expensive', group: 'x', keys, cost: 10 }, ...cheap], features)
    expect(10 * run.until(600 * SECOND).started('expensive')).toBeLessThanOrEqual(20)
  })
})

describe('jobs that need two contended keys', () => {
  const sources = (halfUs: number): Source[] => [
    { name: 'p', group: 'p', keys: { c: 'x', d: 'y' }, fromUs: 2 * halfUs },
    ...['c1', 'c2'].map((name) => ({ name, group: name, keys: { c: 'x' } })),
    ...['d1', 'd2'].map((name) => ({ name, group: name, keys: { d: 'y' }, fromUs: halfUs })),
  ]
  const RATES = [
    ['equal, half an interval apart', 1000, 1000],
    ['one 40 times the other', 25, 1000],
  ] as const
  test.each(RATES)('of %s rates get 90 percent of their share', (_, cMs, dMs) => {
    const shape: Shape = { limits: [rateBy('c', 1, cMs), rateBy('d', 1, dMs)] }
    const [turns, slowerUs] = [150, Math.max(cMs, dMs) * 1000]
    const run = runOf(shape, sources(slowerUs / 2)).until(turns * slowerUs)
    // Of the slower key three groups want a third each.
    expect(run.started('p')).toBeGreaterThanOrEqual((0.9 * turns) / 3)
    const used = ['p', 'c1', 'c2'].reduce((sum, name) => sum + run.started(name), 0) * cMs * 1000
    const usedOfD = ['p', 'd1', 'd2'].reduce((sum, name) => sum + run.started(name), 0) * dMs * 1000
    expect(used / (turns * slowerUs)).toBeGreaterThan(0.9)
    expect(usedOfD / (turns * slowerUs)).toBeGreaterThan(0.9)
  })
  test('of equal rates starve without keep', () => {
    const shape: Shape = { limits: [rateBy('c', 1, 1000), rateBy('d', 1, 1000)] }
    const run = runOf(shape, sources(SECOND / 2), { ...ALL_FEATURES, keep: false }).until(150 * SECOND)
    expect(run.started('p')).toBeLessThan(15)
  })
})

describe('jobs that need a place and a contended rate', () => {
  const sources = (runsUs: number): Source[] => [
    { name: 'p', group: 'p', keys: { k: 'x', d: 'y' }, runsUs },
    ...[1, 2, 3, 4].map((i) => ({ name: `k${i}`, group: `k${i}`, keys: { k: 'x' }, runsUs })),
    ...[1, 2, 3, 4].map((i) => ({ name: `d${i}`, group: `d${i}`, keys: { d: 'y' } })),
  ]
  const TIMES = [
    ['730 ms and 1/s', 730, 1000],
    ['9.7 s and 1/s', 9730, 1000],
  ] as const
  const places: Limit = { name: 'k', by: 'k', algorithm: 'concurrency', concurrency: 2 }
  test.each(TIMES)('of %s get 90 percent of their share', (_, runMs, dMs) => {
    const shape: Shape = { limits: [places, rateBy('d', 1, dMs)] }
    const endUs = 120 * Math.max(runMs, dMs) * 1000
    const run = runOf(shape, sources(runMs * 1000)).until(endUs)
    const share = Math.min((2 * endUs) / (runMs * 1000), endUs / (dMs * 1000)) / 5
    expect(run.started('p')).toBeGreaterThanOrEqual(0.9 * share)
  })
})

describe('jobs of five groups that need three contended cells', () => {
  const needed = { a: 'x', b: 'x', k: 'x' }
  const groups = [1, 2, 3, 4, 5].map((i) => ({
    ...{ name: `p${i}`, group: `p${i}`, keys: needed, runsUs: 120_000, fromUs: SECOND },
  }))
  // The two rates are out of phase.
  const rivals = ['a', 'b', 'k'].flatMap((key) =>
    [1, 2].map((i) => ({
      ...{ name: `${key}${i}`, group: `${key}${i}`, keys: { [key]: 'x' }, fromUs: key === 'b' ? 33_000 : 0 },
      ...(key === 'k' ? { runsUs: 120_000 } : {}),
    })),
  )
  const places: Limit = { name: 'k', by: 'k', algorithm: 'concurrency', concurrency: 2 }
  const shape: Shape = { limits: [rateBy('a', 1, 100), rateBy('b', 1, 150), places] }
  test('get something', () => {
    const run = runOf(shape, [...groups, ...rivals]).until(150 * SECOND)
    expect(groups.filter(({ name }) => run.started(name) > 0)).toEqual(groups)
  })
  test('get a quarter of their share and more if cells may be kept for half of their time', () => {
    const run = runOf(shape, [...groups, ...rivals], { ...ALL_FEATURES, keepBudget: 0.5 }).until(150 * SECOND)
    // Of 1,000 departures of the slowest cell seven groups want a seventh each.
    for (const { name } of groups) expect(run.started(name)).toBeGreaterThan(1000 / 7 / 4)
  })
})
