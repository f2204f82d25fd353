import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { LateReturns } from '../../src/worker/late-returns.ts'

let returns: LateReturns

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'] })
  returns = new LateReturns()
})

afterEach(() => {
  vi.useRealTimers()
})

test('one late return is an accident, the second of the same job is not', () => {
  expect(returns.persistent).toBe(false)
  returns.note('a')
  returns.note('b')
  expect(returns.persistent).toBe(false)
  returns.note('a')
  expect(returns.persistent).toBe(true)
})

test('it is over once the job started', () => {
  returns.note('a')
  returns.note('a')
  returns.started('b')
  expect(returns.persistent).toBe(true)
  returns.started('a')
  expect(returns.persistent).toBe(false)
})

test('a job that another worker took is forgotten after five seconds, and no longer keeps this worker at one at a time', () => {
  returns.note('a')
  returns.note('a')
  vi.setSystemTime(Date.now() + 4900)
  expect(returns.persistent).toBe(true)
  vi.setSystemTime(Date.now() + 200)
  expect(returns.persistent).toBe(false)
  returns.note('a')
  expect(returns.persistent).toBe(false)
})
