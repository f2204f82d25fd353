import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { InvalidInputError } from '../../../../src/errors.ts'
import { type RequestsInFlight, requestsInFlight } from '../../src/shedding/requests-in-flight.ts'
import { cohortOf } from '../../src/shedding/shedder.ts'
import { callers, isRefused, of, passOf, requestOf, responseOf } from './support.ts'

// Which callers are refused changes from hour to hour.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.UTC(2026, 0, 1, 12) })
})
afterEach(() => {
  vi.useRealTimers()
})

/** Lets in as many requests of a class as there is room for. */
function fill(shedder: RequestsInFlight, trafficClass: string, most = 1000): (() => void)[] {
  const leaves: (() => void)[] = []
  for (let i = 0; i < most; i++) {
    const entry = shedder.enter(of(trafficClass, `caller-${i}`))
    if (isRefused(entry)) continue
    leaves.push(passOf(entry).leave as () => void)
  }
  return leaves
}

test('each class fills its room, and the more critical ones have theirs', () => {
  const shedder = requestsInFlight({ max: 10 })
  expect(fill(shedder, 'sheddable')).toHaveLength(6)
  expect(fill(shedder, 'default')).toHaveLength(2)
  expect(fill(shedder, 'critical')).toHaveLength(2)
  expect(shedder.count).toBe(10)
  expect(isRefused(shedder.enter(of('critical')))).toBe(true)
})

test('critical requests may take all places, and then others have none', () => {
  const shedder = requestsInFlight({ max: 10 })
  expect(fill(shedder, 'critical')).toHaveLength(10)
  expect(fill(shedder, 'default')).toHaveLength(0)
})

test('a place is free again when its request is over, once', () => {
  const shedder = requestsInFlight({ max: 2, classes: [{ name: 'all' }], gradualShare: 0 })
  const [first, second] = fill(shedder, 'all')
  expect(isRefused(shedder.enter(requestOf()))).toBe(true)
  first?.()
  first?.()
  expect(shedder.count).toBe(1)
  expect(isRefused(shedder.enter(requestOf()))).toBe(false)
  expect(isRefused(shedder.enter(requestOf()))).toBe(true)
  second?.()
  expect(shedder.count).toBe(1)
})

test('the last of the room is filled by ever fewer callers, the same ones', () => {
  const shedder = requestsInFlight({ max: 100, classes: [{ name: 'critical' }, { name: 'rest' }], gradualShare: 0.2 })
  fill(shedder, 'critical', 90)
  expect(shedder.count).toBe(90)
  for (const name of callers(200)) {
    const entry = shedder.enter(of('rest', name))
    expect([name, isRefused(entry)]).toEqual([name, cohortOf(name, Date.now()) < 0.5])
    if (!isRefused(entry)) passOf(entry).leave?.()
  }
  expect(isRefused(shedder.enter(of('critical')))).toBe(false)
})

test('the refusal is a 503 with a time to come again, and no fact about the caller', () => {
  const shedder = requestsInFlight({ max: 1, name: 'front' })
  shedder.enter(of('default'))
  const { status, headers, body } = responseOf(shedder.enter(of('default')))
  expect(status).toBe(503)
  expect(headers).toMatchObject({ 'content-type': 'application/problem+json', 'cache-control': 'no-store' })
  expect(Number(headers['retry-after'])).toBeGreaterThanOrEqual(1)
  expect(JSON.parse(body as string)).toMatchObject({
    type: expect.stringMatching(/#temporary-reduced-capacity$/),
    status: 503,
    detail: 'there is no room for more requests of class "default"',
    'violated-policies': ['front'],
    retryAfterMs: 1000,
    retry_after: Number(headers['retry-after']),
  })
})

test('requests are counted by class', () => {
  const shedder = requestsInFlight({ max: 5, gradualShare: 0 })
  fill(shedder, 'sheddable', 4)
  fill(shedder, 'critical', 3)
  expect(shedder.counts()).toEqual({
    critical: { admitted: 2, refused: 1, wouldRefuse: 0 },
    default: { admitted: 0, refused: 0, wouldRefuse: 0 },
    sheddable: { admitted: 3, refused: 1, wouldRefuse: 0 },
  })
})

test('in shadow all pass, what would be refused is counted, and told only when asked to', () => {
  const classes = [{ name: 'all' }]
  const quiet = requestsInFlight({ max: 1, mode: 'shadow', classes })
  expect(passOf(quiet.enter(requestOf())).headers).toBeUndefined()
  expect(passOf(quiet.enter(requestOf())).headers).toBeUndefined()
  expect(quiet.counts()).toEqual({ all: { admitted: 2, refused: 0, wouldRefuse: 1 } })
  expect(quiet.count).toBe(2)
  const named = requestsInFlight({ max: 1, mode: 'shadow', classes, shadowHeader: 'X-Dark' })
  expect(passOf(named.enter(requestOf())).headers).toBeUndefined()
  expect(passOf(named.enter(requestOf())).headers).toEqual({ 'x-dark': 'requests-in-flight' })
})

test('off counts nothing but what is in flight', () => {
  const shedder = requestsInFlight({ max: 1, mode: 'off' })
  const leaves = fill(shedder, 'default', 3)
  expect(shedder.count).toBe(3)
  for (const leave of leaves) leave()
  expect(shedder.count).toBe(0)
  expect(shedder.counts().default).toEqual({ admitted: 0, refused: 0, wouldRefuse: 0 })
})

test.each([
  [{ max: 0 }, 'max must be a whole number >= 1; got 0'],
  [{ max: 1.5 }, 'max must be a whole number >= 1; got 1.5'],
  [{ max: 1, gradualShare: 2 }, 'gradualShare must be a number > 0 and at most 1; got 2'],
  [{ max: 1, shadowHeader: 'x dark' }, 'shadowHeader must be the name of a header field; got "x dark"'],
  [{ max: 1, key: 'ip' as never }, 'key must be a function; got "ip"'],
  [{ max: 1, name: '' }, 'a shedder needs a name'],
  [{ max: 1, mode: 'dark' as 'off' }, `mode must be 'enforce', 'shadow' or 'off'; got "dark"`],
])('refused: %j', (options, message) => {
  expect(() => requestsInFlight(options)).toThrow(InvalidInputError)
  expect(() => requestsInFlight(options)).toThrow(message)
})

test('a name that no header can hold is percent-encoded in one', () => {
  const shedder = requestsInFlight({ name: 'größe\r\nx: 日', max: 1, mode: 'shadow', shadowHeader: 'x-shed' })
  shedder.enter(of('critical'))
  expect(passOf(shedder.enter(of('critical'))).headers).toEqual({ 'x-shed': 'gr%c3%b6%c3%9fe%0d%0ax: %e6%97%a5' })
})
