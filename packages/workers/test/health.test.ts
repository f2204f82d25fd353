import { afterEach, expect, test } from 'vitest'
import { type HealthServer, startHealthServer } from '../src/health.ts'
import type { QueueFacts } from '../src/liveness.ts'

const backlog: QueueFacts = { waiting: 3, paused: false, full: false, intervalMs: 0, burst: 1 }
const world = { nowMs: 0, facts: (): Promise<QueueFacts> => Promise.resolve(backlog), accepting: true }
let server: HealthServer | undefined

afterEach(async () => {
  await server?.close()
  server = undefined
})

async function ask(path: string, init?: RequestInit): Promise<{ status: number; reason: string }> {
  server ??= await startHealthServer({
    host: '127.0.0.1',
    port: 0,
    stallTimeoutMs: 1000,
    queueFacts: () => world.facts(),
    lastProgressMs: () => 0,
    accepting: () => world.accepting,
    nowMs: () => world.nowMs,
  })
  const response = await fetch(`http://127.0.0.1:${server.port}${path}`, init)
  const { reason } = (await response.json()) as { reason: string }
  return { status: response.status, reason }
}

test('/live remembers between questions since when work waits', async () => {
  world.nowMs = 5000
  expect(await ask('/live')).toEqual({ status: 200, reason: 'working' })
  world.nowMs = 6000
  expect(await ask('/live')).toEqual({
    status: 503,
    reason: '3 jobs waiting and none started or finished here for 1000 ms',
  })
})

test('/live stays well and /ready does not while Redis is gone', async () => {
  world.facts = () => Promise.reject(new Error('connection is closed'))
  expect(await ask('/live')).toEqual({ status: 200, reason: 'Redis does not answer' })
  expect(await ask('/ready')).toEqual({ status: 503, reason: 'Redis does not answer' })
  world.facts = () => Promise.resolve(backlog)
  expect(await ask('/ready')).toEqual({ status: 200, reason: 'taking jobs' })
})

test('/ready is false when no jobs are taken', async () => {
  world.accepting = false
  expect(await ask('/ready')).toEqual({ status: 503, reason: 'not taking jobs' })
  world.accepting = true
})

test('anything else is not found', async () => {
  expect((await ask('/')).status).toBe(404)
  expect((await ask('/live', { method: 'POST' })).status).toBe(404)
})
