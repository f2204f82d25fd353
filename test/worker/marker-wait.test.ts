import { expect, test } from 'vitest'
import { readDeparture } from '../../src/departure/reply.ts'
import { idleDispatcher } from './idle-host.ts'

/** A loop that waits for the marker, as it has found no job. */
async function waiting() {
  const state = { paused: false, overloaded: false, places: 1, closing: false }
  const handedOn: boolean[] = []
  let asks = 0
  let come = (_atMs: number | undefined) => {}
  const dispatcher = idleDispatcher({
    concurrency: () => state.places,
    stopping: () => state.paused || state.closing,
    overloaded: () => state.overloaded,
    closing: () => state.closing,
    ask: async () => {
      asks += 1
      return readDeparture([1, String(Date.now() * 1000), 0, [], 'empty', '', '', 0, 0])
    },
    waitForMarker: () =>
      new Promise((resolve) => {
        come = resolve
      }),
    giveBack: async (_, leaving) => void handedOn.push(leaving),
    process: async () => {},
  })
  const running = dispatcher.run()
  await expect.poll(() => asks).toBe(1)
  /** The wait ends. @returns whether another worker got the marker, and whether this one asked for jobs */
  const ends = async (atMs: number | undefined) => {
    const [before, given] = [asks, handedOn.length]
    come(atMs)
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
    const found = { handedOn: handedOn.length > given, asked: asks > before }
    state.closing = true
    dispatcher.wake()
    come(undefined)
    await running
    return found
  }
  return { state, ends }
}

test.each(['paused', 'overloaded', 'filled'])(
  'a worker that was %s while it waited hands the marker on',
  async (how) => {
    const { state, ends } = await waiting()
    if (how === 'paused') state.paused = true
    if (how === 'overloaded') state.overloaded = true
    if (how === 'filled') state.places = 0
    expect(await ends(0)).toEqual({ handedOn: true, asked: false })
  },
)

test('a marker is for the worker that has room', async () => {
  const { ends } = await waiting()
  expect(await ends(0)).toEqual({ handedOn: false, asked: true })
})
