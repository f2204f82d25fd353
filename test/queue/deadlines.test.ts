import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Deadlines } from '../../src/redis/deadlines.ts'
import { useRedis } from '../support/redis.ts'

const LENGTH_MS = 100
const redis = useRedis(import.meta.url)

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  // There are no answers to be read.
  vi.stubGlobal('setImmediate', (call: () => void) => call())
})
afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

/** Waits that begin 10 ms after each other. */
function waits(names: string) {
  const deadlines = new Deadlines(LENGTH_MS)
  const over: string[] = []
  const done = new Map<string, () => void>()
  for (const name of names) {
    done.set(
      name,
      deadlines.add(() => over.push(name)),
    )
    vi.advanceTimersByTime(10)
  }
  return { over, end: (name: string) => done.get(name)?.() }
}

test('each wait is over at its own time', () => {
  const { over } = waits('abc')
  vi.advanceTimersByTime(69)
  expect(over).toEqual([])
  vi.advanceTimersByTime(1)
  expect(over).toEqual(['a'])
  vi.advanceTimersByTime(20)
  expect(over).toEqual(['a', 'b', 'c'])
})

test.each(['a', 'b', 'c', 'd', 'ad', 'bc', 'db', 'ba', 'abd', 'dcb', 'abcd'])(
  'of a, b, c and d, %s end before',
  (ended) => {
    const { over, end } = waits('abcd')
    for (const name of ended) end(name)
    vi.advanceTimersByTime(LENGTH_MS)
    expect(over.join('')).toBe([...'abcd'].filter((name) => !ended.includes(name)).join(''))
  },
)

test('a wait that ended twice, or after its time, takes no other with it', () => {
  const { over, end } = waits('ab')
  end('a')
  end('a')
  vi.advanceTimersByTime(LENGTH_MS)
  end('b')
  expect(over).toEqual(['b'])
})

test('after all have ended, another one has its time', () => {
  const deadlines = new Deadlines(LENGTH_MS)
  const over: string[] = []
  deadlines.add(() => over.push('a'))()
  vi.advanceTimersByTime(LENGTH_MS * 3)
  deadlines.add(() => over.push('b'))
  vi.advanceTimersByTime(LENGTH_MS)
  expect(over).toEqual(['b'])
})

test('a wait that begins in the callback of another one is its own', () => {
  const deadlines = new Deadlines(LENGTH_MS)
  const over: string[] = []
  deadlines.add(() => deadlines.add(() => over.push('second')))
  vi.advanceTimersByTime(LENGTH_MS)
  expect(over).toEqual([])
  vi.advanceTimersByTime(LENGTH_MS)
  expect(over).toEqual(['second'])
})

test('an answer that came while this process was busy is in time', async () => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
  const client = redis.client()
  await client.ping()
  const over = vi.fn()
  const done = new Deadlines(20).add(over)
  const answered = client.ping().then(done)
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500)
  await answered
  expect(over).not.toHaveBeenCalled()
})
