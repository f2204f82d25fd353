import { expect, test } from 'vitest'
import type { HeldJob } from '../../src/departure/held-job.ts'
import { unheldJob } from '../../src/departure/held-job.ts'
import { readDeparture } from '../../src/departure/reply.ts'
import { RedisClock } from '../../src/redis/clock.ts'
import { Dispatcher } from '../../src/worker/dispatcher.ts'
import { idleHost } from './idle-host.ts'

function jobAt(id: string, slotUs: number): HeldJob {
  return unheldJob([[], id, 0, 0], slotUs, 0, false)
}

test.each([
  ['gives it back', 60_000_000, ['fetched'], ['first']],
  ['ends after it has run', -1000, [], ['first', 'fetched', 'fetched ended']],
])('a worker that closes while the end of a job fetches another %s', async (_, aheadUs, back, runs) => {
  let closing = false
  const ran: string[] = []
  const returned: string[] = []
  const nowUs = Date.now() * 1000
  const dispatcher: Dispatcher = new Dispatcher(
    idleHost({
      closing: () => closing,
      depart: async () =>
        readDeparture([1, String(nowUs), 0, [[[], 'first', String(nowUs), 1, '0', '', '']], 'full', '', '', 0, 0]),
      process: async ({ id }) => {
        ran.push(id)
        if (id !== 'first') {
          for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
          ran.push(`${id} ended`)
          return 1
        }
        closing = true
        dispatcher.wake()
        // The reply to its end comes after the held jobs went back.
        for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
        dispatcher.accept([jobAt('fetched', nowUs + aheadUs)])
        return 1
      },
      giveBack: async (jobs) => {
        returned.push(...jobs.map(({ id }) => id))
      },
    }),
    new RedisClock(),
  )
  await dispatcher.run()
  expect(returned).toEqual(back)
  expect(ran).toEqual(runs)
  expect(dispatcher.held).toEqual([])
})

/** A dispatcher that only gets jobs from ends, and what it ran. */
function dispatching(): { dispatcher: Dispatcher; ran: string[]; nowUs: number } {
  const ran: string[] = []
  const nowUs = Date.now() * 1000
  const host = idleHost({
    closing: () => false,
    depart: async () => readDeparture([1, String(nowUs), 0, [], 'empty', '', '', 0, 0]),
    process: async ({ id }) => ran.push(id),
  })
  return { dispatcher: new Dispatcher(host, new RedisClock()), ran, nowUs }
}

test('jobs that one end fetched and another granted start in the order of their slots', async () => {
  const { dispatcher, ran, nowUs } = dispatching()
  const [first, second, third] = [3, 2, 1].map((ms) => jobAt(`${ms} ms ago`, nowUs - ms * 1000)) as HeldJob[]
  dispatcher.awaitHandOn([first!, second!])
  dispatcher.accept([third!])
  // BullMQ's code hands them on in another order.
  expect(dispatcher.mayStart(second!)).toBe(false)
  dispatcher.accept([second!])
  await Promise.resolve()
  expect(ran).toEqual([])
  expect(dispatcher.mayStart(first!)).toBe(true)
  await new Promise((resolve) => setImmediate(resolve))
  expect(ran).toEqual(['2 ms ago', '1 ms ago'])
})

test('a job that was fetched and never handed on holds no others', async () => {
  const { dispatcher, ran, nowUs } = dispatching()
  dispatcher.awaitHandOn([jobAt('lost', nowUs - 2000)])
  dispatcher.accept([jobAt('next', nowUs - 1000)])
  await new Promise((resolve) => setImmediate(resolve))
  expect(ran).toEqual(['next'])
})
