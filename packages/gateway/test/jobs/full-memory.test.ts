import { beforeEach, expect, test } from 'vitest'
import { GroupFullError, QueueFullError } from '../../../../src/errors.ts'
import { FullMemory } from '../../src/jobs/full-memory.ts'

let nowMs = 0
let memory: FullMemory

beforeEach(() => {
  nowMs = 1000
  memory = new FullMemory(() => nowMs)
})

const full = (retryAfterMs: number, depth = 10) =>
  new QueueFullError('mails', { retryAfterMs, depth, capacity: 10, paused: false })

test('a full queue is known until a place is due', () => {
  expect(memory.standing()).toBeUndefined()
  const error = full(20)
  memory.refused(error)
  nowMs += 19.9
  expect(memory.standing()).toBe(error)
  nowMs += 0.1
  expect(memory.standing()).toBeUndefined()
})

test('a place that comes too early is found after 50 ms', () => {
  memory.refused(full(60_000))
  nowMs += 49.9
  expect(memory.standing()).toBeDefined()
  nowMs += 0.1
  expect(memory.standing()).toBeUndefined()
})

test('where nobody takes what is due it is remembered for twice as long each time, until there is a place', () => {
  const held = () => {
    memory.refused(full(1))
    const sinceMs = nowMs
    while (memory.standing()) nowMs += 1
    return nowMs - sinceMs
  }
  expect([held(), held(), held(), held(), held(), held(), held(), held()]).toEqual([1, 2, 4, 8, 16, 32, 50, 50])
  memory.refused(full(1))
  memory.admitted()
  expect(memory.standing()).toBeUndefined()
  expect(held()).toBe(1)
})

test('refusals that were under way together are one', () => {
  memory.refused(full(1))
  memory.refused(full(1))
  nowMs += 1
  expect(memory.standing()).toBeUndefined()
})

test('what says nothing of the next request is not remembered', () => {
  memory.refused(full(20, 9))
  memory.refused(new Error('out of memory'))
  memory.refused(
    new GroupFullError('mails', 'a', { retryAfterMs: 20, depth: 10, capacity: 10, needed: 1, paused: false }),
  )
  expect(memory.standing()).toBeUndefined()
})

test('when it is over one asks, and the others are refused until that is answered, or 50 ms later', () => {
  const [first, second] = [full(20), full(20)]
  memory.refused(first)
  nowMs += 20
  expect(memory.standing()).toBeUndefined()
  expect(memory.standing()).toBe(first)
  nowMs += 49.9
  expect(memory.standing()).toBe(first)
  nowMs += 0.1
  expect(memory.standing()).toBeUndefined()
  expect(memory.standing()).toBe(first)
  memory.refused(second)
  expect(memory.standing()).toBe(second)
  nowMs += 50
  expect(memory.standing()).toBeUndefined()
  memory.admitted()
  expect([memory.standing(), memory.standing()]).toEqual([undefined, undefined])
})

test('an answer of another kind ends it', () => {
  memory.refused(full(20))
  memory.refused(new Error('out of memory'))
  expect(memory.standing()).toBeUndefined()
})
