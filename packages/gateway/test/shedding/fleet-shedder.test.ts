import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { InvalidInputError } from '../../../../src/errors.ts'
import { type FleetShedderOptions, fleetShedder } from '../../src/shedding/fleet-shedder.ts'
import type { QueueState, WatchedQueue } from '../../src/shedding/queue-watch.ts'
import { callers, HeldClock, isRefused, now, of, passOf } from './support.ts'

// Which callers are refused changes from hour to hour.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.UTC(2026, 0, 1, 12) })
})
afterEach(() => {
  vi.useRealTimers()
})

const INTERVAL_MS = 500
/** Long enough for what was answered to arrive. */
const turn = () => new Promise((resolve) => setImmediate(resolve))

/** A queue whose state is what the test says. */
class HeldQueue implements WatchedQueue {
  readonly name = 'emails'
  state: QueueState | Error | Promise<QueueState> = { depth: 0, capacity: 1000, headAgeMs: undefined }
  readings = 0

  async meter(): Promise<QueueState> {
    this.readings += 1
    if (this.state instanceof Error) throw this.state
    return this.state
  }
}

function held(options: Partial<FleetShedderOptions> = {}) {
  const clock = new HeldClock()
  const queue = new HeldQueue()
  const errors: Error[] = []
  const onError = (error: Error) => errors.push(error)
  const shedder = fleetShedder({ queue, now: clock.now, onError, ...options })
  const look = async () => {
    clock.pass(INTERVAL_MS)
    shedder.enter(of('critical', 'joe', { method: 'GET' }))
    await turn()
    return Number(shedder.level.toFixed(6))
  }
  /** Shows the queue in a state, for so many intervals. @returns the level */
  const show = async (state: Partial<QueueState>, intervals = 1) => {
    queue.state = { depth: 0, capacity: 1000, headAgeMs: undefined, ...state }
    let level = 0
    for (let i = 0; i < intervals; i++) level = await look()
    return level
  }
  return { clock, queue, errors, shedder, look, show }
}

/** How many of 100 are refused; the others are answered at once. */
const refusedOf = (
  shedder: { enter: ReturnType<typeof fleetShedder>['enter'] },
  trafficClass: string,
  method = 'GET',
) =>
  callers(100).filter((name) => {
    const entry = now(shedder.enter(of(trafficClass, name, { method })))
    if (!entry.response) entry.leave?.()
    return entry.response !== undefined
  }).length

test('the level follows the share of the capacity: up above a half, down below four tenths', async () => {
  const { show } = held()
  expect(await show({ depth: 500 }, 5)).toBe(0)
  expect(await show({ depth: 501 }, 5)).toBe(0.25)
  expect(await show({ depth: 400 }, 5)).toBe(0.25)
  expect(await show({ depth: 399 }, 5)).toBe(0.2)
  expect(await show({ depth: 0 }, 30)).toBe(0)
})

test('the level follows the age of the head, where a target is set, also of a queue without capacity', async () => {
  const { show } = held({ targetAgeMs: 60_000 })
  expect(await show({ headAgeMs: 60_000, capacity: undefined }, 3)).toBe(0)
  expect(await show({ headAgeMs: 60_001, capacity: undefined }, 3)).toBe(0.15)
  expect(await show({ headAgeMs: 50_000, depth: 10 }, 3)).toBe(0.15)
  expect(await show({ headAgeMs: 1, depth: 10 }, 5)).toBe(0.1)
  const blind = held()
  expect(await blind.show({ headAgeMs: 1e9, capacity: undefined, depth: 1e9 }, 3)).toBe(0)
})

test.each([480, 2000, 7000, 15_000])(
  'with a request every %i ms a saturated queue sheds within 2 s, and looks no more a minute after the last one',
  async (everyMs) => {
    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'], now: Date.UTC(2026, 0, 1, 12) })
    const queue = new HeldQueue()
    queue.state = { depth: 80, capacity: 100, headAgeMs: undefined }
    const shedder = fleetShedder({ queue, now: () => Date.now() })
    const early: boolean[] = []
    const late: boolean[] = []
    for (let atMs = 0; atMs < 50 * everyMs; atMs += everyMs) {
      const refused = isRefused(shedder.enter(of('sheddable', `caller ${atMs}`, { method: 'GET' })))
      ;(atMs < 2000 ? early : late).push(refused)
      await vi.advanceTimersByTimeAsync(everyMs)
    }
    expect(early[0]).toBe(false)
    expect(late.filter((refused) => !refused)).toEqual([])
    await vi.advanceTimersByTimeAsync(60_000)
    const { readings } = queue
    await vi.advanceTimersByTimeAsync(60_000)
    expect(queue.readings).toBe(readings)
  },
)

test('lower classes are refused first, gradually, critical requests never', async () => {
  const { shedder, show } = held({ shedStep: 0.25, targetAgeMs: 1000 })
  const slow = { headAgeMs: 5000 }
  const shares = () => ['sheddable', 'default', 'critical'].map((name) => refusedOf(shedder, name))
  await show(slow, 2)
  const [sheddable, ...others] = shares()
  expect(others).toEqual([0, 0])
  expect(Math.abs((sheddable as number) - 50)).toBeLessThan(20)
  expect(shares()).toEqual([sheddable, 0, 0])
  await show(slow, 4)
  const [all, half, none] = shares()
  expect([all, none]).toEqual([100, 0])
  expect(Math.abs((half as number) - 50)).toBeLessThan(20)
  await show(slow, 20)
  expect(shares()).toEqual([100, 100, 0])
})

test('the room of critical requests is kept whatever the level is; it counts what was let in since the queue was read', async () => {
  const { shedder, queue, show } = held({ depthShare: 1 })
  await show({ depth: 595, capacity: 1000 })
  expect(refusedOf(shedder, 'sheddable', 'POST')).toBe(95)
  expect(refusedOf(shedder, 'sheddable')).toBe(0)
  await show({ depth: 780, capacity: 1000 })
  expect([refusedOf(shedder, 'sheddable', 'POST'), refusedOf(shedder, 'default', 'POST')]).toEqual([100, 80])
  expect(refusedOf(shedder, 'critical', 'POST')).toBe(0)
  expect([shedder.level, queue.readings]).toEqual([0, 2])
  expect(shedder.counts().default).toEqual({ admitted: 20, refused: 80, wouldRefuse: 0 })
})

test('what is let in while the queue is read counts on', async () => {
  const { clock, shedder, queue } = held({
    depthShare: 1,
    classes: [{ name: 'critical', reserved: 0.5 }, { name: 'rest' }],
  })
  let answer: (state: QueueState) => void = () => {}
  queue.state = new Promise<QueueState>((resolve) => {
    answer = resolve
  })
  expect(refusedOf(shedder, 'rest', 'POST')).toBe(0)
  answer({ depth: 0, capacity: 210, headAgeMs: undefined })
  await turn()
  expect(refusedOf(shedder, 'rest', 'POST')).toBe(95)
  clock.pass(INTERVAL_MS)
  queue.state = { depth: 50, capacity: 210, headAgeMs: undefined }
  expect(isRefused(shedder.enter(of('rest')))).toBe(true)
  await turn()
  expect(refusedOf(shedder, 'rest', 'POST')).toBe(45)
})

test('a request that is not answered counts on when the queue is read, for a second', async () => {
  const { shedder, show } = held({ depthShare: 1 })
  const read = () => show({ depth: 599, capacity: 1000 })
  const isFull = () => isRefused(shedder.enter(of('sheddable')))
  await read()
  const answered = passOf(shedder.enter(of('sheddable')))
  await read()
  expect(isFull()).toBe(true)
  answered.leave?.()
  answered.leave?.()
  expect(isFull()).toBe(true)
  await read()
  // This one is not answered.
  const late = passOf(shedder.enter(of('sheddable')))
  const full = []
  for (let i = 0; i < 3; i++) {
    await read()
    full.push(shedder.enter(of('sheddable')))
  }
  expect(full.map(isRefused)).toEqual([true, true, false])
  late.leave?.()
  await read()
  expect(isFull()).toBe(true)
})

test('places: how many a request takes', async () => {
  const { shedder, show } = held({ places: ({ url }) => Number(url) })
  await show({ depth: 595 })
  const enter = (places: number) => isRefused(shedder.enter(of('sheddable', 'joe', { url: String(places) })))
  expect([enter(6), enter(5), enter(1), enter(0)]).toEqual([true, false, true, false])
})

test('the queue is read once in an interval at most, never twice at once, and nobody waits for it', async () => {
  const { clock, shedder, queue } = held()
  let answer: (state: QueueState) => void = () => {}
  queue.state = new Promise<QueueState>((resolve) => {
    answer = resolve
  })
  for (let i = 0; i < 1000; i++) expect(isRefused(shedder.enter(of('sheddable')))).toBe(false)
  clock.pass(10 * INTERVAL_MS)
  shedder.enter(of('sheddable'))
  expect(queue.readings).toBe(1)
  answer({ depth: 1000, capacity: 1000, headAgeMs: undefined })
  await turn()
  for (let i = 0; i < 10; i++) {
    for (let n = 0; n < 100; n++) shedder.enter(of('sheddable'))
    await turn()
    clock.pass(INTERVAL_MS / 2)
  }
  expect(queue.readings).toBe(6)
})

test('without an answer the last state holds for a while, then all are let in, and it is asked on', async () => {
  const { clock, shedder, errors, queue, show, look } = held({ staleAfterMs: 3000, targetAgeMs: 1 })
  await show({ headAgeMs: 1000 }, 20)
  expect(refusedOf(shedder, 'sheddable')).toBe(100)
  queue.state = new Error('Connection is closed')
  for (let i = 0; i < 6; i++) {
    await look()
    expect(refusedOf(shedder, 'sheddable')).toBe(100)
  }
  clock.pass(1)
  expect(refusedOf(shedder, 'sheddable')).toBe(0)
  expect(errors).toHaveLength(6)
  expect(errors[0]?.message).toBe('Connection is closed')
  const before = queue.readings
  await look()
  await look()
  expect(queue.readings).toBe(before + 2)
  await show({ headAgeMs: 1000 })
  expect(refusedOf(shedder, 'sheddable')).toBe(100)
  expect(shedder.seen).toMatchObject({ state: { headAgeMs: 1000 }, ageMs: 0 })
})

test('before the queue was read all are let in', () => {
  const { shedder } = held()
  expect(refusedOf(shedder, 'sheddable', 'POST')).toBe(0)
  expect(shedder.seen).toEqual({ state: undefined, ageMs: Number.POSITIVE_INFINITY })
})

test('after a time without requests the level has fallen for each interval', async () => {
  const { clock, look, show } = held({ targetAgeMs: 1 })
  expect(await show({ headAgeMs: 1.01 }, 20)).toBe(1)
  await show({ headAgeMs: 0 }, 0)
  clock.pass(20 * INTERVAL_MS)
  expect(await look()).toBeCloseTo(1 - 21 * 0.01, 6)
})

test('off does not even read the queue', async () => {
  const { shedder, queue, show } = held({ mode: 'off' })
  await show({ depth: 1000 }, 5)
  expect(refusedOf(shedder, 'sheddable', 'POST')).toBe(0)
  expect([queue.readings, shedder.counts().sheddable?.admitted]).toEqual([0, 0])
})

test('it is called after its queue', () => {
  const queue = new HeldQueue()
  expect(fleetShedder({ queue }).name).toBe('fleet-shedder:emails')
  expect(fleetShedder({ queue, name: 'mine' }).name).toBe('mine')
})

test.each<[Partial<FleetShedderOptions>, string]>([
  [{ queue: {} as WatchedQueue }, 'a fleet shedder needs a ShapedQueue; got [object Object]'],
  [{ depthShare: 1.1 }, 'depthShare must be a number > 0 and at most 1; got 1.1'],
  [{ shedStep: 0 }, 'shedStep must be a number > 0 and at most 1; got 0'],
  [{ targetAgeMs: 0 }, 'targetAgeMs must be a number > 0; got 0'],
  [{ staleAfterMs: -1 }, 'staleAfterMs must be a number > 0; got -1'],
])('refused: %j', (options, message) => {
  const make = () => fleetShedder({ queue: new HeldQueue(), ...options })
  expect(make).toThrow(InvalidInputError)
  expect(make).toThrow(message)
})
