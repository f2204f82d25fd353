import fc from 'fast-check'
import { afterEach, describe, expect, test } from 'vitest'
import { ALGORITHMS, type Algorithm, encodeRule, isBucket, type LimitWire } from '../../../src/limits/definition.ts'
import { caseCount } from '../../support/cases.ts'
import { useRedis } from '../../support/redis.ts'
import { type Answer, type Operation, Replayer, stateKey } from './replay.ts'
import { fullUs, operationsOf, quotaOf, ruleOf, START_US, storyOf } from './stories.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const replayer = new Replayer(client)

const RUNS = { numRuns: caseCount(200) }
let bases = 0

afterEach(async () => {
  await redis.cleanup()
})

/** Keys that nobody has used. */
function newBase(): string {
  bases += 1
  return `${redis.prefix}:${bases}`
}

const peeksAt = (times: readonly number[], more: Partial<Operation> = {}): Operation[] =>
  times.map((now) => ({ verb: 'peek' as const, now, ...more }))

describe.each(ALGORITHMS)('%s', (algorithm) => {
  const verbs = algorithm === 'concurrency' ? (['extend', 'release'] as const) : (['settle'] as const)

  test('refuses until the time that it names, to the µs and to the ms, and allows then', async () => {
    const stories = storyOf(algorithm, ['take', 'take', 'reserve', 'late', ...verbs])
    await fc.assert(
      fc.asyncProperty(stories, fc.boolean(), async (story, whole) => {
        const base = newBase()
        const operations = operationsOf(story)
        const now = operations.at(-1)!.now
        const cost = whole || algorithm === 'concurrency' ? quotaOf(story.wire) : 0.3
        const asked = [...operations, { verb: 'peek' as const, now, cost }]
        const { offset } = (await replayer.replay(base, [story.wire], asked)).at(-1)!
        const us = Math.ceil(offset)
        const ms = Math.ceil(us / 1000)
        const times = [us - 1, ms * 1000 - 1000, us, ms * 1000].map((after) => now + Math.max(0, after))
        const answers = await replayer.replay(base, [story.wire], peeksAt(times, { cost }))
        const early = us > 0 ? [false, false] : [true, true]
        expect(answers.map(({ allowed }) => allowed)).toEqual([...early, true, true])
      }),
      RUNS,
    )
  })

  test('answers the same whether keys expire in time or never', async () => {
    const stories = storyOf(algorithm, ['take', 'take', 'peek', 'reserve', 'late', ...verbs])
    await fc.assert(
      fc.asyncProperty(stories, async (story) => {
        const [kept, expired] = [newBase(), newBase()]
        // In quarters, which doubles add exactly: the log's sums begin anew with the key.
        const operations = operationsOf(story, 4)
        const later = { verb: 'peek' as const, now: operations.at(-1)!.now + 1000 * fullUs(story.wire) + 60_000_000 }
        const all = [...operations, later]
        const answers = await replayer.replay(kept, [story.wire], all, 'never')
        expect(await replayer.replay(expired, [story.wire], all, 'held')).toEqual(answers)
        expect(await client.exists(stateKey(expired))).toBe(0)
      }),
      RUNS,
    )
  })

  test('never lets more pass than its bound, turns ahead included', async () => {
    await fc.assert(
      fc.asyncProperty(storyOf(algorithm, ['take', 'take', 'reserve', 'late'], 120), async (story) => {
        const operations = operationsOf(story)
        const answers = await replayer.replay(newBase(), [story.wire], operations)
        expectBounded(story.wire, granted(operations, answers))
      }),
      RUNS,
    )
  })
})

test('a lease that is extended does not take the others with it when its own time is over', async () => {
  const wire = encodeRule({ algorithm: 'concurrency', concurrency: 2, leaseMs: 10_000 })
  const operations: Operation[] = [
    { verb: 'take', now: START_US, lease: 1 },
    // A turn ahead: its lease ends 30 s after it, the other one's, extended, 10 s after it.
    { verb: 'late', now: START_US, ahead: 20_000_000, lease: 2 },
    { verb: 'extend', now: START_US, lease: 1 },
    { verb: 'peek', now: START_US + 15_000_000, cost: 2 },
  ]
  const answers = await replayer.replay(newBase(), [wire], operations, 'held')
  expect(answers.at(-1)).toMatchObject({ allowed: false, offset: 15_000_000, left: 1 })
})

test.each(ALGORITHMS)('%s lets no more than the limit pass in one µs', async (algorithm) => {
  const limit = 120
  const wire = wireOf(algorithm, limit, 60_000)
  const takes = Array.from({ length: 2 * limit }, (_, lease) => ({ verb: 'take' as const, now: START_US, lease }))
  const answers = await replayer.replay(newBase(), [wire], takes)
  expect(answers.filter(({ allowed }) => allowed).length).toBe(limit)
})

test('a sliding window counter lets nearly twice the limit pass in one window: at its ends, never at once', async () => {
  const [limit, windowUs] = [100, 1_000_000]
  const wire = wireOf('sliding-window-counter', limit, 1000)
  const boundary = Math.ceil(START_US / windowUs) * windowUs
  const takesAt = (now: number) => Array.from({ length: limit }, () => ({ verb: 'take' as const, now }))
  const within = async (afterUs: number) => {
    const takes = [...takesAt(boundary - 1000), ...takesAt(boundary + afterUs)]
    const answers = await replayer.replay(newBase(), [wire], takes)
    return answers.filter(({ allowed }) => allowed).length
  }
  expect(await within(0)).toBe(limit)
  expect(await within(windowUs / 2)).toBe(1.5 * limit)
  expect(await within(windowUs * 0.99)).toBe(1.99 * limit)
})

test('a unit of the next fixed window that is given back lets no more into this one', async () => {
  const wire = encodeRule({ algorithm: 'fixed-window', rate: '2/s' })
  const now = Math.ceil(START_US / 1_000_000) * 1_000_000
  const operations: Operation[] = [
    { verb: 'take', now, cost: 2 },
    { verb: 'reserve', now, ahead: 2_000_000 },
    { verb: 'settle', now, cost: -1 },
    { verb: 'take', now, cost: 2 },
  ]
  const answers = await replayer.replay(newBase(), [wire], operations)
  expect(answers.at(-1)).toMatchObject({ allowed: false, offset: 1_000_000 })
})

/** So many units at once, and again after the period. */
function wireOf(algorithm: Algorithm, limit: number, period: number): LimitWire {
  if (algorithm === 'concurrency') return encodeRule({ algorithm, concurrency: limit, leaseMs: period })
  return encodeRule({ algorithm, rate: { limit, period }, ...(isBucket(algorithm) ? { burst: limit } : {}) })
}

interface Grant {
  /** µs at which it may begin. */
  readonly at: number
  readonly cost: number
}

function granted(operations: readonly Operation[], answers: readonly Answer[]): Grant[] {
  const grants = operations.flatMap(({ verb, now, cost = 1, ahead = 0 }, i) => {
    const { allowed, offset } = answers[i]!
    return allowed ? [{ at: now + Math.ceil(offset + (verb === 'late' ? ahead : 0)), cost }] : []
  })
  return grants.sort((one, other) => one.at - other.at)
}

function expectBounded(wire: LimitWire, grants: readonly Grant[]): void {
  for (const { at: from } of grants) {
    let sum = 0
    for (const { at, cost } of grants) {
      if (at < from) continue
      sum += cost
      expect(sum, `from ${from} to ${at} of ${JSON.stringify(grants)}`).toBeLessThanOrEqual(mostBetween(wire, from, at))
    }
  }
  if (wire.align === 'first') expectFirstWindows(wire, grants)
}

/** The most that may pass from one time to another, both included. */
function mostBetween(
  { algorithm, interval = 0, burst = 0, limit = 0, window = 0, align }: LimitWire,
  from: number,
  to: number,
): number {
  switch (algorithm) {
    // A turn ahead is charged to a fraction of a µs and taken at the next whole one. Doubles add their last bits.
    case 'gcra':
    case 'token-bucket':
    case 'leaky-bucket':
      return burst + (to - from + 1) / interval + 1e-6
    case 'fixed-window':
      if (align === 'first') return Number.POSITIVE_INFINITY
      return Math.floor(to / window) === Math.floor(from / window) ? limit + 1e-9 : Number.POSITIVE_INFINITY
    // What the last window used counts less with every moment of this one: docs/limiters.md says what that bounds.
    case 'sliding-window-counter': {
      const windows = Math.floor(to / window) - Math.floor(from / window)
      if (windows === 0) return limit + 1e-9
      return windows === 1 ? limit * (1 + (to - from) / window) + 1e-6 : Number.POSITIVE_INFINITY
    }
    // Half-open windows. A lease lasts one.
    case 'sliding-window-log':
    case 'concurrency':
      return to < from + window ? limit + 1e-9 : Number.POSITIVE_INFINITY
  }
}

function expectFirstWindows({ limit, window = 0 }: LimitWire, grants: readonly Grant[]): void {
  let start = Number.NEGATIVE_INFINITY
  let used = 0
  for (const { at, cost } of grants) {
    if (at >= start + window) [start, used] = [at, 0]
    used += cost
    expect(used, `from ${start} to ${at}`).toBeLessThanOrEqual((limit as number) + 1e-9)
  }
}

describe('several limits together', () => {
  const any = fc.constantFrom(...ALGORITHMS).chain((one) => ruleOf(one, [2, 5, 20], 5))
  const wires = fc.array(
    any.map((rule) => encodeRule(rule)),
    { minLength: 2, maxLength: 3 },
  )
  const before = fc.array(
    fc.record({ verb: fc.constantFrom('takeAll', 'take'), limit: fc.nat(2), waitUs: fc.nat(8000) }),
    { maxLength: 25 },
  )

  /** @returns the time after it */
  async function begin(base: string, limits: readonly LimitWire[], events: readonly Begun[]): Promise<number> {
    let now = START_US
    const operations = events.map(({ verb, limit, waitUs }, i) => {
      now += waitUs
      return { verb, now, limit: (limit % limits.length) + 1, lease: i }
    })
    await replayer.replay(base, limits, operations)
    return now
  }

  test('conform together at the latest of their times, not a µs before', async () => {
    await fc.assert(
      fc.asyncProperty(wires, before, fc.boolean(), async (limits, events, more) => {
        const base = newBase()
        const now = await begin(base, limits, events)
        const cost = more ? Math.min(...limits.map(quotaOf)) : 1
        const asked = limits.map((_, i) => ({ verb: 'peek' as const, now, cost, limit: i + 1 }))
        const offsets = (await replayer.replay(base, limits, asked)).map(({ offset }) => offset)
        const latest = Math.ceil(Math.max(...offsets))
        // All ms up to then, and around it each µs.
        const steps = [...range(0, latest, 1000), ...range(Math.max(0, latest - 500), latest + 50, 1)]
        const looks = steps.map((step) => ({ verb: 'peekAll' as const, now: now + step, cost }))
        const found = await replayer.replay(base, limits, looks)
        expect(steps.filter((step, i) => found[i]!.allowed !== step >= latest)).toEqual([])
      }),
      { numRuns: caseCount(150) },
    )
  })

  test('a lease is asked for again by a take, not by a peek: that has none', async () => {
    const wire = encodeRule({ algorithm: 'concurrency', concurrency: 1, leaseMs: 2000 })
    const [take, peek] = (['takeAll', 'peekAll'] as const).map((verb) => ({ verb, now: START_US, lease: 1 }))
    const answers = await replayer.replay(newBase(), [wire], [take!, take!, peek!])
    expect(answers.map(({ allowed }) => allowed)).toEqual([true, true, false])
  })

  test('refused together, none of them has changed', async () => {
    let refused = 0
    await fc.assert(
      fc.asyncProperty(wires, before, async (limits, events) => {
        const base = newBase()
        const now = await begin(base, limits, events)
        const states = () => Promise.all(limits.map((_, i) => client.dumpBuffer(stateKey(base, i + 1))))
        const stored = await states()
        const cost = Math.min(...limits.map(quotaOf))
        const [answer] = await replayer.replay(base, limits, [{ verb: 'takeAll', now, cost, lease: 999 }])
        if (answer?.allowed) return
        refused += 1
        expect(await states()).toEqual(stored)
      }),
      RUNS,
    )
    expect(refused).toBeGreaterThan(RUNS.numRuns / 8)
  })
})

interface Begun {
  readonly verb: 'takeAll' | 'take'
  readonly limit: number
  readonly waitUs: number
}

function range(from: number, to: number, step: number): number[] {
  return Array.from({ length: Math.max(0, Math.ceil((to - from) / step)) }, (_, i) => from + i * step)
}

describe('the boundary attack: limit units just before a window ends, and limit units more just after', () => {
  const WINDOW_US = 60_000_000
  const LIMIT = 50
  const boundary = Math.ceil(START_US / WINDOW_US) * WINDOW_US

  /** Units that pass within a thousandth of the window, of twice the limit. */
  async function attack(algorithm: Algorithm): Promise<number> {
    const wire = wireOf(algorithm, LIMIT, WINDOW_US / 1000)
    const takes = [-WINDOW_US / 2000, WINDOW_US / 2000].flatMap((distance, half) =>
      Array.from({ length: LIMIT }, (_, i) => ({
        verb: 'take' as const,
        now: boundary + distance + i,
        lease: half * LIMIT + i,
      })),
    )
    return (await replayer.replay(newBase(), [wire], takes)).filter(({ allowed }) => allowed).length
  }

  test('succeeds on fixed-window: twice the limit passes', async () => {
    expect(await attack('fixed-window')).toBe(2 * LIMIT)
  })

  test.each(ALGORITHMS.filter((one) => one !== 'fixed-window'))(
    'fails on %s: the limit passes, no unit more',
    async (one) => {
      expect(await attack(one)).toBe(LIMIT)
    },
  )
})
