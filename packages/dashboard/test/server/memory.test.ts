import { expect, test, vi } from 'vitest'
import type { HistoryEntry } from '../../../../src/inspect/index.ts'
import { Sessions, WrongTokens } from '../../src/access.ts'
import { HistoryTail } from '../../src/history-tails.ts'
import { SharedReads } from '../../src/shared-reads.ts'

function clock() {
  const held = { nowMs: 1000 }
  return { held, nowMs: () => held.nowMs }
}

test('a session ends after twelve hours, and another one with it is none', () => {
  const { held, nowMs } = clock()
  const sessions = new Sessions<string>(nowMs)
  const { id, lifetimeMs } = sessions.open('ada')
  expect(lifetimeMs).toBe(12 * 3_600_000)
  expect(sessions.holderOf(id)).toBe('ada')
  expect(sessions.holderOf(`${id}x`)).toBeUndefined()
  held.nowMs += lifetimeMs
  expect(sessions.holderOf(id)).toBe('ada')
  held.nowMs += 1
  expect(sessions.holderOf(id)).toBeUndefined()
  sessions.open('bob')
  expect(sessions.size).toBe(1)
})

test('of many sessions the oldest makes room', () => {
  const sessions = new Sessions<number>()
  const ids = Array.from({ length: 1001 }, (_, i) => sessions.open(i).id)
  expect(sessions.size).toBe(1000)
  expect(sessions.holderOf(ids[0] as string)).toBeUndefined()
  expect(sessions.holderOf(ids[1] as string)).toBe(1)
  expect(new Set(ids).size).toBe(1001)
})

test('after ten wrong tokens a caller is not heard for six seconds, others are', () => {
  const { held, nowMs } = clock()
  const wrong = new WrongTokens(nowMs)
  for (let i = 0; i < 10; i++) {
    expect(wrong.retryAfterMs('a')).toBe(0)
    wrong.note('a')
  }
  expect(wrong.retryAfterMs('a')).toBe(6000)
  expect(wrong.retryAfterMs('b')).toBe(0)
  held.nowMs += 6000
  expect(wrong.retryAfterMs('a')).toBe(0)
  wrong.note('a')
  expect(wrong.retryAfterMs('a')).toBe(6000)
  held.nowMs += 60_000
  wrong.note('c')
  expect(wrong.retryAfterMs('a')).toBe(0)
})

test('reads of a moment are one, and a failure is not kept', async () => {
  const { held, nowMs } = clock()
  const reads = new SharedReads(500, nowMs)
  const read = vi.fn(async () => 'found')
  expect(await Promise.all([reads.read('a', read), reads.read('a', read)])).toEqual(['found', 'found'])
  held.nowMs += 500
  await reads.read('a', read)
  expect(read).toHaveBeenCalledTimes(1)
  held.nowMs += 1
  await reads.read('a', read)
  expect(read).toHaveBeenCalledTimes(2)
  const fail = vi.fn(() => Promise.reject(new Error('away')))
  await expect(reads.read('b', fail)).rejects.toThrow('away')
  await expect(reads.read('b', fail)).rejects.toThrow('away')
  expect(fail).toHaveBeenCalledTimes(2)
})

test('after a change everything is read anew, also what was being read', async () => {
  const reads = new SharedReads(500, () => 0)
  let answer = (_text: string) => {}
  const slow = reads.read('a', () => new Promise<string>((resolve) => (answer = resolve)))
  reads.clear()
  expect(await reads.read('a', async () => 'after')).toBe('after')
  answer('before')
  expect(await slow).toBe('before')
  expect(await reads.read('a', async () => 'never')).toBe('after')
})

test('no more than 200 answers are remembered', async () => {
  const reads = new SharedReads(500, () => 0)
  for (let i = 0; i < 1000; i++) await reads.read(String(i), async () => i)
  expect(reads.size).toBeLessThanOrEqual(200)
})

test('a tail of the history knows what came after an entry, by number', () => {
  const entry = (id: string) => ({ id }) as HistoryEntry
  const tail = new HistoryTail()
  tail.add([entry('10-2'), entry('10-1'), entry('9-9')])
  expect(tail.after('9-10').map(({ id }) => id)).toEqual(['10-2', '10-1'])
  tail.add([entry('11-0'), entry('10-10'), entry('10-2')])
  expect(tail.after('10-2').map(({ id }) => id)).toEqual(['11-0', '10-10'])
  expect(tail.readAfter).toBe('0-0')
  for (let i = 12; i < 1000; i++) tail.add([entry(`${i}-0`)])
  expect(tail.after('0-0')).toHaveLength(200)
})

test('a tail of the history has what shards wrote by a clock that is behind, and at one moment', () => {
  const entry = (id: string, by = 'ada') => ({ id, by }) as HistoryEntry
  const tail = new HistoryTail()
  tail.add([entry('20000-0')])
  const count = tail.count
  expect(tail.readAfter).toBe('10000-0')
  tail.add([entry('20000-0', 'bob'), entry('20000-0'), entry('15000-0')])
  expect(tail.after('20000-0', count).map(({ id, by }) => `${id} ${by}`)).toEqual(['20000-0 bob', '15000-0 ada'])
  tail.add([entry('20000-0', 'bob'), entry('20000-0'), entry('15000-0')])
  expect(tail.count).toBe(3)
})
