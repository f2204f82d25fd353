import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { InvalidInputError } from '../../../../src/errors.ts'
import { type ProcessShedderOptions, processShedder } from '../../src/shedding/process-shedder.ts'
import { cohortOf } from '../../src/shedding/shedder.ts'
import { callers, HeldClock, isRefused, of, responseOf } from './support.ts'

// Which callers are refused changes from hour to hour.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.UTC(2026, 0, 1, 12) })
})
afterEach(() => {
  vi.useRealTimers()
})

/** A shedder of a process whose time and load are what the test says. */
function held(options: ProcessShedderOptions = {}) {
  const clock = new HeldClock()
  const use = { active: 0, idle: 0 }
  const shedder = processShedder({ now: clock.now, loopUse: () => ({ ...use }), ...options })
  /** Passes time, with a request of the critical class every 100 ms. */
  const pass = (ms: number, busy: number) => {
    for (let done = 0; done < ms; done += 100) {
      clock.pass(100)
      use.active += 100 * busy
      use.idle += 100 * (1 - busy)
      expect(isRefused(shedder.enter(of('critical')))).toBe(false)
    }
    return Number(shedder.level.toFixed(6))
  }
  return { shedder, pass }
}

test('above the bound the level rises, by a step in half a second, below 0.8 of it it falls slowly, in between it stays', () => {
  const { pass } = held()
  expect(pass(5000, 0.89)).toBe(0)
  // What the pressure calls for at once: 2 * (0.95 / 0.9 - 1).
  expect(pass(1000, 0.95)).toBe(0.111111)
  expect(pass(5000, 0.95)).toBe(0.611111)
  pass(1000, 0.75)
  const stays = pass(1000, 0.75)
  expect(pass(5000, 0.75)).toBe(stays)
  pass(1000, 0.5)
  const falls = pass(1000, 0.5)
  expect(pass(5000, 0.5)).toBeCloseTo(falls - 0.1, 6)
  expect(pass(100_000, 0)).toBe(0)
})

test('the most sheddable class goes first, caller by caller, the first class never', () => {
  const { shedder, pass } = held({ shedStep: 0.25 })
  const refused = (trafficClass: string) =>
    callers(100).filter((name) => isRefused(shedder.enter(of(trafficClass, name))))
  const below = (share: number) => callers(100).filter((name) => cohortOf(name, Date.now()) < share)
  expect(pass(1500, 1)).toBe(0.5)
  expect([refused('sheddable'), refused('default')]).toEqual([below(0.5), []])
  expect(refused('sheddable')).toEqual(below(0.5))
  expect(pass(1500, 1)).toBe(1.25)
  expect([refused('sheddable').length, refused('default')]).toEqual([100, below(0.25)])
  expect(pass(60_000, 1)).toBe(2)
  expect([refused('sheddable').length, refused('default').length, refused('critical').length]).toEqual([100, 100, 0])
})

test('a caller is told when the level can be below its place, at least a second and at most half a minute', () => {
  const { shedder, pass } = held({ shedStep: 0.5, restoreStep: 0.05, key: () => undefined })
  pass(1500, 1)
  const { headers, body } = responseOf(shedder.enter(of('sheddable')))
  const { retryAfterMs, detail } = JSON.parse(body as string)
  expect(retryAfterMs).toBeGreaterThanOrEqual(1000)
  expect(retryAfterMs).toBeLessThanOrEqual(10_000)
  expect(Number(headers['retry-after']) * 1000).toBeGreaterThanOrEqual(retryAfterMs)
  expect(detail).toBe('the load is too high: 100% of the callers of class "sheddable" are turned away')
  const slow = held({ shedStep: 1, restoreStep: 0.0001, key: () => undefined })
  slow.pass(2000, 1)
  const told = JSON.parse(responseOf(slow.shedder.enter(of('sheddable'))).body as string)
  expect(told.retryAfterMs).toBe(30_000)
})

test('one class is shed too where there is no other', () => {
  const { shedder, pass } = held({ classes: [{ name: 'all' }], mode: 'shadow' })
  expect(pass(60_000, 1)).toBe(1)
  expect(shedder.counts().all?.wouldRefuse).toBeGreaterThan(0)
})

test('by itself it looks at the event loop of this process', async () => {
  const shedder = processShedder({ maxLoopUtilisation: 0.5, windowMs: 100, intervalMs: 10, shedStep: 1 })
  for (let i = 0; i < 200 && shedder.level === 0; i++) {
    const endMs = performance.now() + 10
    while (performance.now() < endMs);
    shedder.enter(of('sheddable'))
    await new Promise((resolve) => setImmediate(resolve))
  }
  expect(shedder.level).toBeGreaterThan(0)
})

test.each([
  [{ maxLoopUtilisation: 1.5 }, 'maxLoopUtilisation must be a number > 0 and at most 1; got 1.5'],
  [{ intervalMs: 0 }, 'intervalMs must be a number > 0; got 0'],
  [{ restoreStep: -1 }, 'restoreStep must be a number > 0 and at most 1; got -1'],
  [{ windowMs: Number.NaN }, 'windowMs must be a number > 0; got NaN'],
])('refused: %j', (options, message) => {
  expect(() => processShedder(options)).toThrow(InvalidInputError)
  expect(() => processShedder(options)).toThrow(message)
})
