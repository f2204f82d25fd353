import { expect, test } from 'vitest'
import { readDeparture } from '../../src/departure/reply.ts'
import { idleDispatcher } from './idle-host.ts'

test('a program knows of the job that it adds before its own worker runs it', async () => {
  let added = false
  let closing = false
  const knew: boolean[] = []
  const now = String(Date.now() * 1000)
  const oneJob = readDeparture([1, now, 0, [[[], '1', now, '1', '0', '']], 'full'])
  const dispatcher = idleDispatcher({
    closing: () => closing,
    // Over one connection the answers to a worker and to a producer come together; what the producer's call still has
    // to do when its answer is there takes many turns of the microtask queue.
    ask: async () => {
      const hear = async () => {
        for (let turn = 0; turn < 100; turn++) await undefined
        added = true
      }
      void hear()
      return oneJob
    },
    waitForMarker: async () => 0,
    process: async () => {
      knew.push(added)
      closing = true
    },
  })
  await dispatcher.run()
  expect(knew).toEqual([true])
})
