import { expect, test } from 'vitest'
import { fetchMiddleware } from '../../src/http/index.ts'
import { GatewayHealth, type HealthOptions } from '../../src/programs/gateway/health.ts'

/** A clock that stands still, and what the gateway does. */
function held(more: Partial<HealthOptions> = {}) {
  const state = {
    nowMs: 1000,
    waiting: 0,
    lastAnswerMs: 0,
    accepting: true,
    reads: 0,
    fails: false,
    turns: [] as boolean[],
  }
  const health = new GatewayHealth({
    readQueues: async () => {
      state.reads += 1
      if (state.fails) throw new Error('Redis did not answer')
    },
    waiting: () => state.waiting,
    lastAnswerMs: () => state.lastAnswerMs,
    accepting: () => state.accepting,
    stallTimeoutMs: 60_000,
    onTurn: (failing) => state.turns.push(failing),
    nowMs: () => state.nowMs,
    ...more,
  })
  return { state, health }
}

/** Sends a request through the watched middleware, which answers with a status. */
function answer(health: GatewayHealth, status: number, method = 'POST'): Promise<Response> {
  const middleware = health.watching({ enter: () => ({ response: { status, headers: {} } }) })
  return fetchMiddleware(middleware, () => new Response())(new Request('http://localhost/', { method }))
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

test('it is ready while every queue can be read, and Redis is asked once a second', async () => {
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

test('a failed admission takes it out until one goes well, or for five seconds', async () => {
  const { state, health } = held()
  const isReady = async () => (await health.ready()).ok
  await answer(health, 503)
  expect(await health.ready()).toEqual({ ok: false, reason: 'the last admission failed' })
  await answer(health, 429)
  await answer(health, 200, 'GET')
  expect(await isReady()).toBe(false)
  await answer(health, 202)
  expect(await isReady()).toBe(true)
  await answer(health, 500)
  await answer(health, 503)
  expect(await isReady()).toBe(false)
  state.nowMs += 5000
  expect(await isReady()).toBe(true)
  expect(state.turns).toEqual([true, false, true])
})
