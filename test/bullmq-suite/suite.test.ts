import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { MODES, type ModeOutcome } from './outcome.ts'
import { runSuite } from './suite.ts'

const projectDir = fileURLToPath(new URL('../..', import.meta.url))

// Stands for BullMQ's tests. It fails in every mode, so that nothing differs, and tells in its message what it was given.
const PROBE = `
import { Redis } from 'ioredis'
import { it } from 'vitest'
import { Queue, Worker } from '../src/classes'
import { RedisQueueBackend } from '../src/classes/redis-queue-backend'

it('tells what it was given', async () => {
  const queue = new Queue('probe', { connection: { host: '127.0.0.1', port: 6379 } })
  const backend = queue.getBackend()
  const redis = new Redis()
  const [, port] = await redis.config('GET', 'port')
  redis.disconnect()
  await queue.close()
  throw new Error(JSON.stringify({
    worker: Worker.name,
    stockBackend: Object.getPrototypeOf(backend) === RedisQueueBackend.prototype,
    oneCopyOfBullmq: backend instanceof RedisQueueBackend,
    redisOfTheRun: port === process.env.BULLMQ_SUITE_REDIS_PORT,
  }))
})
`

let dir: string
let outcomes: ModeOutcome[]

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'bullmq-suite-'))
  const src = join(dir, 'checkout')
  mkdirSync(join(src, 'tests'), { recursive: true })
  writeFileSync(join(src, 'package.json'), '{ "name": "bullmq", "version": "0.0.0" }')
  writeFileSync(join(src, 'tsconfig.json'), '{}')
  writeFileSync(join(src, 'tests/probe.test.ts'), PROBE)
  vi.spyOn(console, 'log').mockReturnValue()
  const cacheDir = join(projectDir, '.cache/bullmq-suite-probe')
  const { signal } = new AbortController()
  outcomes = (await runSuite({ src, modes: MODES, only: [], projectDir, cacheDir, signal })).modes
})

afterAll(() => {
  vi.restoreAllMocks()
  rmSync(dir, { recursive: true, force: true })
})

it.each([
  { mode: 'stock', worker: 'Worker', stockBackend: true },
  { mode: 'backend', worker: 'Worker', stockBackend: false },
  { mode: 'worker', worker: 'ShapedWorker', stockBackend: false },
] as const)('gives the tests of mode $mode what it names', ({ mode, worker, stockBackend }) => {
  const [file] = outcomes.find((outcome) => outcome.mode === mode)?.files ?? []
  expect(file?.problems).toEqual([])
  const facts: unknown = JSON.parse(file?.tests[0]?.message ?? '')
  expect(facts).toEqual({ worker, stockBackend, oneCopyOfBullmq: true, redisOfTheRun: true })
})
