import type { EventEmitter } from 'node:events'
import { expect, onTestFinished, test, vi } from 'vitest'
import { ShapedQueue, ShapedQueueEvents, ShapedWorker } from '../../src/index.ts'
import { warnUnhandled } from '../../src/redis/unhandled-errors.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)

/** Warnings of the process, and what is printed beside them. */
function printed() {
  const warnings: Error[] = []
  const note = (warning: Error) => void warnings.push(warning)
  process.on('warning', note)
  onTestFinished(() => void process.off('warning', note))
  return { warnings, stacks: vi.spyOn(console, 'error').mockImplementation(() => {}) }
}

test('without Redis, what no one listens to is one line, however often queues try to connect', async () => {
  const { warnings, stacks } = printed()
  // Nothing listens there.
  const options = { connection: { host: '127.0.0.1', port: 1, retryStrategy: () => 5 } }
  const queues = ['emails', 'sms'].map((name) => new ShapedQueue(name, options))
  const emits = queues.map((one) => vi.spyOn(one, 'emit'))
  const errors = () => emits.map(({ mock }) => mock.calls.filter(([event]) => event === 'error').length)
  await vi.waitFor(() => expect(Math.min(...errors())).toBeGreaterThanOrEqual(3), 60_000)
  await Promise.all(queues.map((one) => one.close()))
  expect(stacks.mock.calls).toEqual([])
  expect(warnings).toMatchObject([
    {
      code: 'SLUICE_REDIS_AWAY',
      message: expect.stringMatching(
        /^cannot use Redis: connect ECONNREFUSED 127\.0\.0\.1:1\. Queues and workers try again/,
      ),
    },
  ])
})

test('workers and events say it in the same line, and leave it to a listener', async () => {
  const { warnings, stacks } = printed()
  const { connection, prefix } = redis
  const options = { connection, prefix }
  const error = new Error('connect ECONNREFUSED 127.0.0.1:3')
  const worker = new ShapedWorker('emails', async () => {}, { ...options, autorun: false })
  const open = [worker, new ShapedQueueEvents('emails', options)]
  const emitters = open as unknown as readonly EventEmitter[]
  expect(emitters.map((one) => one.emit('error', error))).toEqual([false, false])
  const heard: unknown[] = []
  for (const one of emitters) one.on('error', (error) => heard.push(error))
  expect(emitters.map((one) => one.emit('error', error))).toEqual([true, true])
  await Promise.all(open.map((one) => one.waitUntilReady()))
  await Promise.all(open.map((one) => one.close()))
  expect([heard, warnings.length, stacks.mock.calls]).toEqual([[error, error], 1, []])
})

test('the two addresses of localhost are named; other errors are printed as they are; an outage is told again', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const { warnings, stacks } = printed()
  const refused = ['::1', '127.0.0.1'].map((address) => new Error(`connect ECONNREFUSED ${address}:2`))
  const passed = async (ms: number) => {
    vi.advanceTimersByTime(ms)
    expect(warnUnhandled(new AggregateError(refused))).toBe(false)
    await new Promise((resolve) => process.nextTick(resolve))
    return warnings.length
  }
  expect([await passed(0), await passed(59_999), await passed(1)]).toEqual([1, 1, 2])
  expect(warnings[0]?.message).toContain('connect ECONNREFUSED ::1:2, connect ECONNREFUSED 127.0.0.1:2')
  const other = new Error('ERR value is not an integer')
  warnUnhandled(other)
  expect(stacks.mock.calls).toEqual([[other]])
})
