import { expect, onTestFinished, test, vi } from 'vitest'
import { Departures } from '../../src/departure/exchange.ts'
import { readDeparture } from '../../src/departure/reply.ts'
import { ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { idleDispatcher, nothing } from './idle-host.ts'

const redis = useRedis(import.meta.url)

test('a worker passes on the longest horizon that it knows of, for the time after a loss', async () => {
  const { connection, prefix } = redis
  const queue = new ShapedQueue('mail', { connection, prefix, shape: { rate: '1000/s' } })
  onTestFinished(() => queue.close())
  await queue.add('job', {})
  const worker = new ShapedWorker('mail', async () => {}, { connection, prefix, autorun: false })
  onTestFinished(() => worker.close())
  const asks = vi.spyOn(Departures.prototype, 'ask')
  const known = () => asks.mock.calls.filter(([{ id }]) => id !== 'distant').map(([, request]) => request)
  await worker.backend.exchange!.ask({ jobs: 1, horizonUs: 700_000 })
  const [departures] = asks.mock.contexts as [Departures]
  asks.mockClear()
  await departures.ask({ id: 'distant', allowUnshaped: false }, { jobs: 1, horizonUs: 700_000 })

  void worker.run()
  await queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'job', data: {} })))

  await expect.poll(() => known().some((request) => request.longestHorizonUs === 700_000), { interval: 5 }).toBe(true)
  expect(known().every(({ horizonUs }) => horizonUs < 700_000)).toBe(true)
})

/** What Redis answers while the next slot is a day ahead. */
function closed(loss: '' | 'hold', longestHorizonUs: string) {
  const nowUs = Date.now() * 1000
  const slotUs = String(nowUs + 86_400_000_000)
  const notes = [loss, '0', '0', '', '0', 1, 0, longestHorizonUs]
  return readDeparture([1, String(nowUs), 0, [], 'closed', slotUs, slotUs, 0, 0, notes])
}

test('a loss that the end of a job finds does not make a worker forget the longest horizon', async () => {
  const asked: (number | undefined)[] = []
  let closing = false
  const dispatcher = idleDispatcher({
    closing: () => closing,
    ask: async ({ longestHorizonUs }) => {
      asked.push(longestHorizonUs)
      return closed('', '700000')
    },
    process: async () => {},
  })
  const running = dispatcher.run()
  await expect.poll(() => asked.length).toBe(1)
  dispatcher.exchanged({ ...nothing, reply: closed('hold', ''), sentMs: dispatcher.nowMs })
  dispatcher.wake()
  await expect.poll(() => asked.length).toBe(2)
  expect(asked[1]).toBe(700_000)
  closing = true
  dispatcher.wake()
  await running
})
