import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Collector } from '../../src/redis/collector.ts'

const MOST_HELD_MS = 2
const ENOUGH = 4

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})
afterEach(() => {
  vi.useRealTimers()
})

/** All that goes on by itself. */
const turn = () => new Promise((resolve) => setImmediate(resolve))

/** Two calls are under way. */
async function busy() {
  const sent: string[] = []
  const replies: { resolve: (replies: string[]) => void; reject: (error: Error) => void }[] = []
  const many = (calls: readonly string[]) => {
    sent.push(calls.join(''))
    return new Promise<string[]>((resolve, reject) => replies.push({ resolve, reject }))
  }
  const one = async (call: string) => (await many([call]))[0] as string
  const collector = new Collector<string, string>({ one, many, enough: () => ENOUGH, mostSendings: 2 })
  const ask = (calls: string) => [...calls].map((call) => collector.add(call))
  const [a] = ask('a')
  await turn()
  const [b] = ask('b')
  await turn()
  expect(sent).toEqual(['a', 'b'])
  return { sent, ask, replies, a, b }
}

test('while as many are under way as may be, calls are collected until one is answered', async () => {
  const { sent, ask, replies, a } = await busy()
  ask('c')
  await turn()
  const answers = ask('d')
  await turn()
  expect(sent).toEqual(['a', 'b'])
  replies[0]?.resolve(['A'])
  expect(await a).toBe('A')
  await turn()
  expect(sent).toEqual(['a', 'b', 'cd'])
  replies[2]?.resolve(['C', 'D'])
  expect(await Promise.all(answers)).toEqual(['D'])
})

test('whoever asks again when he is answered goes with those who waited', async () => {
  const { sent, ask, replies, a } = await busy()
  ask('c')
  const again = a?.then(() => ask('d'))
  replies[0]?.resolve(['A'])
  await again
  await turn()
  expect(sent).toEqual(['a', 'b', 'cd'])
})

test('one that fails lets those go that waited', async () => {
  const { sent, ask, replies, b } = await busy()
  ask('c')
  replies[1]?.reject(new Error('gone'))
  await expect(b).rejects.toThrow('gone')
  await turn()
  expect(sent).toEqual(['a', 'b', 'c'])
})

test('nobody waits longer than 2 ms for the answer to others', async () => {
  const { sent, ask } = await busy()
  ask('c')
  vi.advanceTimersByTime(MOST_HELD_MS - 1)
  expect(sent).toEqual(['a', 'b'])
  vi.advanceTimersByTime(1)
  expect(sent).toEqual(['a', 'b', 'c'])
  // The next ones wait as long, counted from their own time.
  ask('d')
  vi.advanceTimersByTime(MOST_HELD_MS - 1)
  expect(sent).toEqual(['a', 'b', 'c'])
  vi.advanceTimersByTime(1)
  expect(sent).toEqual(['a', 'b', 'c', 'd'])
})

test('enough of them wait for nothing, and leave no timer behind', async () => {
  const { sent, ask } = await busy()
  ask('cdef')
  expect(sent).toEqual(['a', 'b', 'cdef'])
  expect(vi.getTimerCount()).toBe(0)
})
