import { expect, test } from 'vitest'
import type { JobEnd } from '../../src/departure/job-end.ts'
import { type DepartureReply, readDeparture } from '../../src/departure/reply.ts'
import type { Dispatcher } from '../../src/worker/dispatcher.ts'
import { idleDispatcher, nothing } from './idle-host.ts'

/** A reply that grants one job. */
function grantOf(id: string, slotUs: number): DepartureReply {
  return readDeparture([
    1,
    String(Date.now() * 1000),
    0,
    [[[], id, String(slotUs), 1, '0', '', '']],
    'full',
    '',
    '',
    0,
    0,
  ])
}

function endOf(id: string): JobEnd {
  return { id, token: 'token', fetches: false, isPostponed: false, fields: [] }
}

test.each([
  ['gives it back', 60_000_000, ['fetched'], ['first']],
  ['ends after it has run', -1000, [], ['first', 'fetched', 'fetched ended']],
])('a worker that closes while the end of a job fetches another %s', async (_, aheadUs, back, runs) => {
  let closing = false
  const ran: string[] = []
  const returned: string[] = []
  const nowUs = Date.now() * 1000
  const dispatcher: Dispatcher = idleDispatcher({
    closing: () => closing,
    ask: async () => grantOf('first', nowUs),
    process: async ({ id }) => {
      ran.push(id)
      if (id !== 'first') {
        for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
        ran.push(`${id} ended`)
        return
      }
      closing = true
      dispatcher.wake()
      // The reply to its end comes after the held jobs went back.
      for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
      dispatcher.exchanged({ ...nothing, reply: grantOf('fetched', nowUs + aheadUs) })
    },
    giveBack: async (jobs) => {
      returned.push(...jobs.map(({ id }) => id))
    },
  })
  await dispatcher.run()
  expect(returned).toEqual(back)
  expect(ran).toEqual(runs)
  expect(dispatcher.held).toEqual([])
})

/** A dispatcher that only gets jobs from ends, and what it did. */
function dispatching(): { dispatcher: Dispatcher; did: string[]; nowUs: number } {
  const did: string[] = []
  const nowUs = Date.now() * 1000
  const dispatcher = idleDispatcher({
    closing: () => false,
    ask: async () => grantOf('first', nowUs),
    process: ({ id }) => {
      did.push(id)
      return new Promise<void>(() => {})
    },
  })
  return { dispatcher, did, nowUs }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

test('jobs that several ends brought start in the order of their slots', async () => {
  const { dispatcher, did, nowUs } = dispatching()
  const ago = (ms: number) => ({ results: [[[], `${ms} ms ago`, 0, 0]], nowUs: nowUs - ms * 1000 }) as const
  dispatcher.exchanged({ ...nothing, reply: grantOf('1 ms ago', nowUs - 1000) })
  dispatcher.exchanged({ ...nothing, reply: grantOf('2 ms ago', nowUs - 2000) })
  dispatcher.exchanged({ ...nothing, ends: [endOf('another')], ...ago(3) })
  await turn()
  expect(did).toEqual(['2 ms ago', '1 ms ago', '3 ms ago'])
})

test.each([
  ['fetched', { ends: [endOf('first')], results: [[[], 'next', 0, 0]] }],
  ['granted', { reply: grantOf('next', 0) }],
] as const)('a job that ended is reported before the one that its end %s starts', async (_, brought) => {
  const { dispatcher, did } = dispatching()
  dispatcher.exchanged({ ...nothing, ...brought } as never)
  // However much BullMQ's code still has to do.
  for (let tick = 0; tick < 100; tick++) await undefined
  did.push('reported')
  await turn()
  expect(did).toEqual(['reported', 'next'])
})

test('a job whose end Redis has taken leaves its place, also before it is reported', async () => {
  const { dispatcher, did, nowUs } = dispatching()
  void dispatcher.run()
  await expect.poll(() => did).toEqual(['first'])
  expect([dispatcher.placesTaken, dispatcher.full, dispatcher.running]).toEqual([1, true, 1])
  dispatcher.exchanged({ ...nothing, ends: [endOf('first')], results: [0] })
  expect([dispatcher.placesTaken, dispatcher.full]).toEqual([0, false])
  dispatcher.exchanged({ ...nothing, reply: grantOf('second', nowUs) })
  await turn()
  expect(did).toEqual(['first', 'second'])
  expect([dispatcher.placesTaken, dispatcher.full]).toEqual([1, true])
})

test('a job for a batch that an end fetched before a pause goes back', async () => {
  const returned: string[] = []
  const dispatcher = idleDispatcher({
    closing: () => false,
    ask: async () => grantOf('first', 0),
    process: async () => {},
    giveBack: async (jobs) => {
      returned.push(...jobs.map(({ id }) => id))
    },
    batches: { options: { size: 2, minSize: 2, timeoutMs: 600_000 }, keepLock: () => {} },
  })
  const sentMs = dispatcher.nowMs - 1
  dispatcher.release({ id: 'shape', revision: '2' })
  dispatcher.exchanged({ ...nothing, ends: [endOf('first')], results: [[[], 'next', 0, 0]], sentMs })
  await turn()
  expect(returned).toEqual(['next'])
  expect(dispatcher.held).toEqual([])
})
