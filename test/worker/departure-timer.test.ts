import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { RedisClock, systemTime } from '../../src/redis/clock.ts'
import { DepartureTimer } from '../../src/worker/departure-timer.ts'

interface Item {
  slotUs: number
  name: string
}

let monotonicMs = 0
let clock: RedisClock
let due: string[]
let timer: DepartureTimer<Item>

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  monotonicMs = 1000
  clock = new RedisClock({ ...systemTime, monotonicMs: () => monotonicMs, wallMs: () => monotonicMs })
  clock.sample(0)
  due = []
  timer = new DepartureTimer<Item>(clock, ({ name }) => due.push(name))
})

afterEach(() => {
  vi.useRealTimers()
})

/** Time goes by, and timers fire on time. */
function pass(ms: number): void {
  monotonicMs += ms
  vi.advanceTimersByTime(ms)
}

const at = (ms: number, name: string): Item => ({ slotUs: ms * 1000, name })

function add(item: Item, to = timer): void {
  to.hold(item)
  to.fireDue()
}

test('items fire at their slots, in the order of the slots', () => {
  for (const item of [at(30, 'c'), at(10, 'a'), at(20, 'b')]) add(item)
  expect(timer.size).toBe(3)
  // The margin for drift is 0.5 µs a ms, and timers count whole ms.
  pass(10)
  expect(due).toEqual([])
  pass(1)
  expect(due).toEqual(['a'])
  pass(20)
  expect(due).toEqual(['a', 'b', 'c'])
  expect(timer.size).toBe(0)
})

test('items of one slot keep their order, also between others', () => {
  for (const item of [at(10, 'a1'), at(5, 'b'), at(10, 'a2'), at(10, 'a3')]) add(item)
  pass(12)
  expect(due).toEqual(['b', 'a1', 'a2', 'a3'])
})

test('what is due fires at once, in the same tick', () => {
  add(at(0, 'now'))
  expect(due).toEqual(['now'])
})

test('a timer that fires early does not start a job early', () => {
  add(at(10, 'a'))
  // The timer fires, but the clock says that 0.94 ms are left.
  monotonicMs += 9.06
  vi.advanceTimersByTime(11)
  expect(due).toEqual([])
  monotonicMs += 0.9
  vi.advanceTimersByTime(1)
  expect(due).toEqual([])
  monotonicMs += 0.06
  vi.advanceTimersByTime(1)
  expect(due).toEqual(['a'])
})

test('a slot farther away than a timer reaches is waited for in parts', () => {
  const days = 30 * 86_400_000
  clock.reset()
  clock.sample(0)
  add(at(days, 'far'))
  pass(2 ** 31 - 1)
  expect(due).toEqual([])
  expect(vi.getTimerCount()).toBe(1)
})

test('what is taken out never fires, and comes in the order of the slots', () => {
  add(at(20, 'b'))
  add(at(10, 'a'))
  expect(timer.items.map(({ name }) => name)).toEqual(['a', 'b'])
  expect(timer.takeAll().map(({ name }) => name)).toEqual(['a', 'b'])
  expect(vi.getTimerCount()).toBe(0)
  expect(timer.items).toEqual([])
  pass(1000)
  expect(due).toEqual([])
})

test('what is due is fired on demand where the timer has not come to it, once', () => {
  add(at(10, 'a'))
  add(at(20, 'b'))
  monotonicMs += 15
  timer.fireDue()
  expect(due).toEqual(['a'])
  pass(10)
  expect(due).toEqual(['a', 'b'])
})

test('one timer serves all items', () => {
  for (let i = 1; i <= 50; i++) add(at(100 - i, `item ${i}`))
  expect(vi.getTimerCount()).toBe(1)
})

test('an item that is added while another fires is not lost', () => {
  const seen: string[] = []
  const chained = new DepartureTimer<Item>(clock, ({ name }) => {
    seen.push(name)
    if (seen.length < 3) add(at(seen.length * 10, `after ${name}`), chained)
  })
  add(at(5, 'first'), chained)
  pass(6)
  pass(6)
  pass(11)
  expect(seen).toEqual(['first', 'after first', 'after after first'])
})
