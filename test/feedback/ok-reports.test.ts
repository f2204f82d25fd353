import { beforeEach, describe, expect, test, vi } from 'vitest'
import type { Ok } from '../../src/feedback/feedback.ts'
import { OkReports, SubjectOks } from '../../src/feedback/ok-reports.ts'
import { encodeQueueLimits } from '../../src/limits/queue-limits.ts'
import { StoredShape } from '../../src/shape/stored.ts'
import { said } from './support/told.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] })
  // At 0, a time that is not known would look like one that is.
  pass(1)
  return () => vi.useRealTimers()
})

const pass = (ms: number) => vi.advanceTimersByTime(ms)
const ok = (of: Partial<Ok>): Ok => ({ kind: 'ok', ...said, ...of })
/** 100/s, and what feedback has stored. */
const shapeOf = (feedback: object = {}, more: Readonly<Record<string, string>> = {}) =>
  new StoredShape({
    born: '1',
    rev: '1',
    mode: 'enforce',
    interval: '10000',
    feedback: JSON.stringify(feedback),
    ...more,
  })

describe('calls that go well are counted', () => {
  test('until the next report, and for a second where none is due', () => {
    const oks = new OkReports(true)
    for (const sentUs of [30, 10, 20]) {
      expect(oks.next(sentUs, [], shapeOf(), 0)).toBeUndefined()
      pass(400)
    }
    expect(oks.take()).toEqual({ count: 3, lastUs: 30, agoMs: 400 })
    expect(oks.take()).toEqual({ count: 0, lastUs: 30, agoMs: 400 })
    oks.next(40, [], shapeOf(), 0)
    pass(1001)
    oks.next(50, [], shapeOf(), 0)
    expect(oks.take().count).toBe(1)
  })

  test('and reported twenty times in each quiet period, at most each 100 ms, and each time while one job probes', () => {
    const counts = (shape: StoredShape) => {
      const oks = new OkReports(true)
      return Array.from({ length: 7 }, () => {
        const report = oks.next(1, [], shape, 0)
        pass(50)
        return report?.count
      })
    }
    const none = undefined
    expect(counts(shapeOf({ pace: { interval: 1, quietMs: 4000 } }))).toEqual([1, none, none, none, 4, none, none])
    expect(counts(shapeOf({ pace: { interval: 1, quietMs: 1000 } }))).toEqual([1, none, 2, none, 2, none, 2])
    for (const recent of [{ doubt: {} }, { pauses: 1 }, { concurrency: { limit: 1, until: 0, wall: 2 } }])
      expect(counts(shapeOf(recent))).toEqual([1, none, 2, none, 2, none, 2])
    expect(counts(shapeOf({}, { probe: 'armed 1' }))).toEqual([1, 1, 1, 1, 1, 1, 1])
  })

  test('by group, of the thousand groups with the latest ones', () => {
    const oks = new SubjectOks()
    oks.wentWell('first', 20)
    oks.wentWell('second', 1)
    pass(5)
    oks.wentWell('first', 10)
    for (let i = 0; i < 999; i++) oks.wentWell(`g${i}`, 1)
    pass(5)
    expect(oks.take('first')).toEqual({ count: 2, lastUs: 20, agoMs: 5 })
    expect(oks.take('first').count).toBe(0)
    expect(oks.take('second').count).toBe(0)
  })
})

describe('a quota is reported', () => {
  const reported = (quota: Ok, { adapts = true, running = 0, shape = shapeOf() } = {}) =>
    (new OkReports(adapts).next(1, [quota], shape, running)?.quotas.length ?? 0) === 1

  test('where it is used up, whoever adapts', () => {
    expect(reported(ok({ remaining: 0, resetMs: 1 }), { adapts: false })).toBe(true)
    expect(reported(ok({ remaining: 0, resetMs: 0 }), { adapts: false })).toBe(false)
    expect(reported(ok({ remaining: 1, resetMs: 1000 }), { adapts: false })).toBe(false)
  })

  test('where the rate would use it up before its reset, or was expected to', () => {
    // 100 departures in that second.
    expect(reported(ok({ remaining: 99, resetMs: 1000 }))).toBe(true)
    expect(reported(ok({ remaining: 100, resetMs: 1000 }))).toBe(false)
    expect(reported(ok({ remaining: 110, resetMs: 1000 }), { running: 11 })).toBe(true)
    expect(reported(ok({ remaining: 110, resetMs: 1000 }), { running: 10 })).toBe(false)
    expect(reported(ok({ remaining: 1, resetMs: 10 }), { running: 5 })).toBe(true)
    const paced = shapeOf({ quota: { interval: 1, until: 1 } })
    expect(reported(ok({ remaining: 1000, resetMs: 1000 }), { shape: paced })).toBe(true)
    expect(reported(ok({ remaining: 1000, resetMs: 1000 }), { shape: shapeOf({}, { mode: 'off' }) })).toBe(true)
    expect(reported(ok({ remaining: 99, resetMs: 1000, scope: 'group' }))).toBe(false)
  })

  test('where it is left of a limit of the shape, whoever adapts', () => {
    const shape = shapeOf({}, { limits: encodeQueueLimits([{ name: 'tokens', rate: '5/s' }]) as string })
    const of = (limit: string, remaining?: number) => ok({ scope: { limit }, ...(remaining && { remaining }) })
    expect(reported(of('tokens', 5), { adapts: false, shape })).toBe(true)
    expect(reported(of('tokens'), { adapts: false, shape })).toBe(false)
    expect(reported(of('other', 5), { adapts: true, shape })).toBe(false)
    expect(reported(of('tokens', 5))).toBe(false)
  })

  test('where a policy allows less than the rate', () => {
    expect(reported(ok({ policyRate: { limit: 100, period: 1000 } }))).toBe(false)
    expect(reported(ok({ policyRate: { limit: 99, period: 1000 } }))).toBe(true)
    expect(reported(ok({ policyRate: { limit: 99, period: 1000 } }), { adapts: false })).toBe(false)
  })

  test('four times a second, those of groups each time', () => {
    const oks = new OkReports(true)
    const quotas = [ok({ remaining: 0, resetMs: 9 }), ok({ remaining: 0, resetMs: 9, scope: 'group' })]
    const scopes = () => oks.next(1, quotas, shapeOf(), 0)?.quotas.map(({ scope }) => scope)
    expect(scopes()).toEqual(['queue', 'group'])
    pass(249)
    expect(scopes()).toEqual(['group'])
    pass(1)
    expect(scopes()).toEqual(['queue', 'group'])
  })
})
