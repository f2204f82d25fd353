import { expect, test } from 'vitest'
import { GatewayHealth, type HealthOptions } from '../../src/program/health.ts'

/** A clock that stands still, and what the gateway does. */
function held(more: Partial<HealthOptions> = {}) {
  const state = {
    nowMs: 1000,
    waiting: 0,
    lastAnswerMs: 0,
    accepting: true,
    reads: 0,
    fails: false,
  }
  const health = new GatewayHealth({
    askRedis: async () => {
      state.reads += 1
      if (state.fails) throw new Error('Redis did not answer')
    },
    waiting: () => state.waiting,
    lastAnswerMs: () => state.lastAnswerMs,
    accepting: () => state.accepting,
    stallTimeoutMs: 60_000,
    nowMs: () => state.nowMs,
    ...more,
  })
  return { state, health }
}

test('it is alive while requests are answered, and when none waits', () => {
  const { state, health } = held()
  expect(health.live()).toEqual({ ok: true, reason: 'nothing waits' })
  state.nowMs += 3_600_000
  state.waiting = 3
  expect(health.live()).toEqual({ ok: true, reason: 'working' })
  state.nowMs += 59_999
  expect(health.live().ok).toBe(true)
  state.lastAnswerMs = state.nowMs
  state.nowMs += 59_999
  expect(health.live().ok).toBe(true)
  state.nowMs += 1
  expect(health.live()).toEqual({ ok: false, reason: '3 requests waiting and none answered for 60000 ms' })
  state.waiting = 0
  expect(health.live().ok).toBe(true)
})

test('it is ready while Redis takes writes, and Redis is asked once a second', async () => {
  const { state, health } = held()
  await Promise.all([health.ready(), health.ready()])
  expect(await health.ready()).toEqual({ ok: true, reason: 'taking requests' })
  expect(state.reads).toBe(1)
  state.fails = true
  state.nowMs += 1000
  expect(await health.ready()).toEqual({ ok: false, reason: 'Redis did not answer' })
  expect(state.reads).toBe(2)
  state.accepting = false
  expect(await health.ready()).toEqual({ ok: false, reason: 'stopping' })
})
