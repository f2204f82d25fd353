import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { afterMs } from '../../src/redis/deadlines.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'clearImmediate'] }))
afterEach(() => void vi.useRealTimers())

test('a wait is over at its time, and not before what has arrived by then is read', () => {
  const over = vi.fn()
  setTimeout(() => setImmediate(() => expect(over).not.toHaveBeenCalled()), 100)
  afterMs(99.5, over)
  vi.advanceTimersByTime(99)
  expect(over).not.toHaveBeenCalled()
  vi.advanceTimersByTime(2)
  expect(over).toHaveBeenCalledOnce()
})

test('a wait that was stopped is never over, not even if an answer read at its time stops it', () => {
  const over = vi.fn()
  afterMs(100, over)()
  let stop = () => {}
  setTimeout(() => setImmediate(() => stop()), 100)
  stop = afterMs(100, over)
  vi.advanceTimersByTime(1000)
  expect(over).not.toHaveBeenCalled()
})
