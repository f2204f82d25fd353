import { expect, test } from 'vitest'
import type { Shape } from '../../src/shape.ts'
import { useRedis } from '../support/redis.ts'
import { type Combination, START_US } from './combination.ts'
import { Crossing } from './crossing.ts'
import type { WorkerTraits } from './fleet.ts'
import { VirtualScripts } from './virtual-redis.ts'

// What random combinations found, in the smallest form.
const redis = useRedis(import.meta.url)
const scripts = new VirtualScripts(redis.client())
const MS = 1000
let checks = 0

interface Found extends Partial<Combination> {
  readonly shape: Shape
  readonly jobs: Combination['jobs']
  readonly workers: readonly WorkerTraits[]
}

function check(found: Found): Promise<string | undefined> {
  const combination = { seed: 1, startUs: START_US, events: [], ...found }
  checks += 1
  return new Crossing(`${redis.prefix}:found${checks}:`, scripts, combination).check()
}

function worker(concurrency: number, startsAfterUs = 0): WorkerTraits {
  return { concurrency, roundTripUs: 1000, startsAfterUs }
}

function jobsAt(timesMs: readonly number[], runsMs: number): Combination['jobs'] {
  return timesMs.map((ms) => ({ cost: 1, runsUs: runsMs * MS, atUs: START_US + ms * MS }))
}

test('a job is not left where its marker went to a worker that the end of a job had put to sleep', async () => {
  const shape: Shape = {
    limits: [{ name: 'window', algorithm: 'fixed-window', rate: { limit: 3, period: 1000 }, align: 'first' }],
  }
  // Two workers wait for a marker when they hear at the end of their jobs that the window is used up. The third opens the
  // next one. What comes then finds the two, which have waited longer.
  const jobs = jobsAt([100, 110, 120, 200, 1400, 1410, 1900], 150)
  const workers = [worker(10), worker(10, 5 * MS), worker(10, 10 * MS)]
  expect(await check({ shape, jobs, workers })).toBeUndefined()
})

test('a job that comes when one worker is full and the others sleep is soon asked for', async () => {
  const shape: Shape = {
    limits: [{ name: 'window', algorithm: 'fixed-window', rate: { limit: 300, period: 1000 }, align: 'first' }],
  }
  // The second worker sleeps until the next window, the first longer. What comes when the second is full is for the first.
  const [all] = jobsAt([100], 10)
  const jobs = [{ ...all, cost: 300 }, ...jobsAt([200, 210, 1300, 1310], 4000)] as Combination['jobs']
  expect(await check({ shape, jobs, workers: [worker(10), worker(2, 5 * MS)] })).toBeUndefined()
})

test('several cheap jobs take the place of a dear one that ended, where the only worker ends it', async () => {
  const shape: Shape = { limits: [{ name: 'places', algorithm: 'concurrency', concurrency: 4 }] }
  const costs = [4, 1, 1, 1, 1, 4, 1, 1, 1, 1]
  const jobs = costs.map((cost) => ({ cost, runsUs: 500 * MS }))
  expect(await check({ shape, jobs, workers: [worker(20)] })).toBeUndefined()
})

test('workers that run one job at a time ask few times for each', async () => {
  const jobs = Array.from({ length: 60 }, () => ({ cost: 1, runsUs: 90 * MS }))
  const workers = Array.from({ length: 8 }, (_, i) => worker(1, i * MS))
  expect(await check({ shape: { rate: '10/s', horizonMs: 500 }, jobs, workers })).toBeUndefined()
})

test('a window that begins with its first unit does not begin with a job that a pause puts back', async () => {
  const shape: Shape = {
    limits: [{ name: 'window', algorithm: 'fixed-window', rate: { limit: 10, period: 1000 }, align: 'first' }],
  }
  // The second window would begin a second after the first; one job for it is granted when the pause comes.
  const costs = [...Array(10).fill(1), 3, 8, 1, 1, 1]
  const jobs = jobsAt([...Array(10).fill(2), 900, 900, 1200, 1200, 1200], 0).map((job, i) => ({
    ...job,
    cost: costs[i],
  }))
  const pausedUntilUs = START_US - (START_US % MS) + 1600 * MS
  const events = [{ kind: 'pause', atUs: START_US + 990 * MS, pausedUntilUs }] as const
  expect(await check({ shape, jobs, events, workers: [worker(20)] })).toBeUndefined()
})

test('two overrides that end one after the other, while no worker asks, are reckoned each from its end', async () => {
  const shape: Shape = { rate: '1/s', burst: 50 }
  const jobs = jobsAt([...Array(40).fill(1900), ...Array(50).fill(4200)], 0)
  const fast = { limit: 100_000, period: 1_000_000 }
  const startMs = START_US - (START_US % MS)
  const events = [
    { kind: 'override', atUs: START_US, sets: { rate: fast }, holds: { rate: fast, burst: 50 }, ttlMs: 2000 },
    { kind: 'override', atUs: START_US, sets: { burst: 40 }, holds: { rate: fast, burst: 40 }, ttlMs: 4000 },
    { kind: 'ends', atUs: startMs + 2000 * MS, holds: { rate: '1/s', burst: 40 } },
    { kind: 'ends', atUs: startMs + 4000 * MS, holds: { rate: '1/s', burst: 50 } },
  ] as const
  expect(await check({ shape, jobs, events, workers: [worker(100)] })).toBeUndefined()
})
