import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { CLOSE_LIMIT_MS, closeInTime } from '../../src/backend/closing.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

/** A close of connections that end when they are cut, and of jobs whose processors end when told to. */
function closing() {
  const seen: string[] = []
  let end = () => {}
  const closed = new Promise<void>((resolve) => {
    end = resolve
  })
  let idle = () => {}
  const whenIdle = new Promise<void>((resolve) => {
    idle = resolve
  })
  const work = { running: 0, idle: () => (work.running === 0 ? Promise.resolve() : whenIdle) }
  const cut = () => {
    seen.push('cut')
    end()
  }
  const begin = () => closeInTime(closed, cut, work).then(() => seen.push('closed'))
  const endWork = () => {
    work.running = 0
    idle()
  }
  return { seen, end, work, endWork, begin }
}

test('a close that ends in time cuts nothing', async () => {
  const { seen, end, begin } = closing()
  void begin()
  await vi.advanceTimersByTimeAsync(CLOSE_LIMIT_MS - 1)
  end()
  await vi.advanceTimersByTimeAsync(CLOSE_LIMIT_MS)
  expect(seen).toEqual(['closed'])
  expect(vi.getTimerCount()).toBe(0)
})

test('a close waits for processors as long as they run, and then for Redis until the limit', async () => {
  const { seen, work, endWork, begin } = closing()
  work.running = 1
  void begin()
  await vi.advanceTimersByTimeAsync(3_600_000)
  endWork()
  await vi.advanceTimersByTimeAsync(CLOSE_LIMIT_MS - 1)
  expect(seen).toEqual([])
  await vi.advanceTimersByTimeAsync(10)
  expect(seen).toEqual(['cut', 'closed'])
})

test('the limit begins again after a processor that began meanwhile', async () => {
  const { seen, work, endWork, begin } = closing()
  void begin()
  await vi.advanceTimersByTimeAsync(CLOSE_LIMIT_MS / 2)
  work.running = 1
  await vi.advanceTimersByTimeAsync(CLOSE_LIMIT_MS)
  endWork()
  await vi.advanceTimersByTimeAsync(CLOSE_LIMIT_MS / 2)
  expect(seen).toEqual([])
  await vi.advanceTimersByTimeAsync(CLOSE_LIMIT_MS)
  expect(seen).toEqual(['cut', 'closed'])
})

test('a close that not even the cut ends is left 5 s later', async () => {
  const left: string[] = []
  void closeInTime(new Promise(() => {}), () => left.push('cut')).then(() => left.push('left'))
  await vi.advanceTimersByTimeAsync(CLOSE_LIMIT_MS + 10)
  expect(left).toEqual(['cut'])
  await vi.advanceTimersByTimeAsync(5000)
  expect(left).toEqual(['cut', 'left'])
})
