import { expect, test } from 'vitest'
import { encodeFeedbackRequest } from '../../src/feedback/request.ts'
import { InvalidShapeError, type Shape } from '../../src/index.ts'
import { encodeShape } from '../../src/shape/shape.ts'
import { heldText } from '../model/replay.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

// How rates rise after long pauses: the scripts of lua/ at times that the test says.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const START_MS = 1_800_000_000_000
const SHAPE = { rate: '100/s', groups: { rate: '10/s' }, rampUp: { from: 0.1, overMs: 60_000 } } as const
let queues = 0

/** A queue at a time of its own. */
class Clocked {
  readonly #key: string
  readonly #script = heldText(new URL('steps.lua', import.meta.url))
  #ms = 0

  constructor() {
    queues += 1
    this.#key = `${redis.prefix}:r${queues}:meta:shape`
  }

  /** Goes on to so many ms after the start. */
  at(ms: number): this {
    this.#ms = ms
    return this
  }

  async #step(...args: readonly string[]): Promise<unknown> {
    return client.eval(this.#script, 1, this.#key, (START_MS + this.#ms) * 1000, ...args)
  }

  declare = (shape: Shape) => this.#step('declare', JSON.stringify(encodeShape(shape).fields))
  pause = (ms: number) => this.#step('pause', 'for', String(ms), 'a test', '', 'ada')
  resume = () => this.#step('pause', 'clear', '', 'a test', '', 'ada')
  setGroup = (fields: object, ttlMs?: number) =>
    this.#step(
      'setGroup',
      'a',
      JSON.stringify(fields),
      'ada',
      'a test',
      ttlMs === undefined ? '' : String(ttlMs),
      '',
      '',
    )

  refused(forMs: number): Promise<unknown> {
    const pause = { kind: 'pause', forMs, hard: true, scope: 'queue', source: 'user', reason: '429' } as const
    const request = {
      found: [{ feedback: pause }],
      sentUs: (START_MS + this.#ms) * 1000,
      by: 'w',
      adapt: undefined,
      oks: 0,
    }
    return this.#step('apply', encodeFeedbackRequest(request))
  }

  /** A second. */
  async rate(group = ''): Promise<number> {
    return Math.round(1e8 / Number(await this.#step('interval', group))) / 100
  }
}

async function clocked(shape: Shape = SHAPE): Promise<Clocked> {
  const queue = new Clocked()
  await queue.declare(shape)
  return queue
}

test('after a pause of a minute the rate rises from a tenth to all of it, never above the line', async () => {
  const queue = await clocked()
  expect(await queue.rate()).toBe(100)
  await queue.pause(60_000)
  const end = 60_000
  expect(await queue.at(end).rate()).toBe(10)
  for (const ms of [1, 2999, 3000, 17_500, 30_000, 52_000, 56_000, 59_999]) {
    const line = 100 * (0.1 + 0.9 * (ms / 60_000))
    const rate = await queue.at(end + ms).rate()
    expect(rate).toBeLessThanOrEqual(line + 0.01)
    expect(rate).toBeGreaterThan(line - 100 * 0.9 * 0.051)
  }
  expect(await queue.at(end + 60_000).rate()).toBe(100)
})

test('one of less than a minute, or that is ended before, lets it go on at once', async () => {
  const queue = await clocked()
  await queue.pause(59_999)
  expect(await queue.at(60_000).rate()).toBe(100)
  await queue.pause(600_000)
  await queue.at(119_000).resume()
  expect(await queue.rate()).toBe(100)
})

test('a pause that goes on, or ends before its time, counts for as long as it lasted', async () => {
  const queue = await clocked()
  await queue.pause(40_000)
  await queue.at(30_000).pause(40_000)
  expect(await queue.at(70_000).rate()).toBe(10)
  await queue.at(200_000).pause(600_000)
  await queue.at(300_000).resume()
  expect(await queue.rate()).toBe(10)
  expect(await queue.at(330_000).rate()).toBeCloseTo(55, 0)
})

/** A queue, or a group in it, whose rate begins to rise at a minute. */
interface Rising {
  readonly queue: Clocked
  readonly group: string
  readonly full: number
  pause(ms: number): Promise<unknown>
  resume(): Promise<unknown>
}

async function risingQueue(pause: 'pause' | 'refused'): Promise<Rising> {
  const queue = await clocked()
  await queue.pause(60_000)
  return { queue, group: '', full: 100, pause: (ms) => queue[pause](ms), resume: () => queue.resume() }
}

async function risingGroup(): Promise<Rising> {
  const queue = await clocked()
  await queue.setGroup({ limited: true }, 60_000)
  return {
    ...{ queue, group: 'a', full: 10 },
    pause: (ms) => queue.setGroup({ paused: true }, ms < Number.POSITIVE_INFINITY ? ms : undefined),
    resume: () => queue.setGroup({ paused: { clear: true } }),
  }
}

test.each([
  ['a queue', () => risingQueue('pause')],
  ['a queue by feedback', () => risingQueue('refused')],
  ['a group', risingGroup],
])('a short pause holds the rise of %s, which goes on after it where it was', async (_, rising) => {
  const { queue, group, full, pause } = await rising()
  const share = async (ms: number) => (await queue.at(60_000 + ms).rate(group)) / full
  expect(await share(18_000)).toBeCloseTo(0.37, 3)
  await pause(30_000)
  // Feedback adds up to a tenth.
  for (const ms of [18_001, 33_000, 48_000]) expect(await share(ms)).toBeCloseTo(0.37, 3)
  const ended = await share(54_000)
  expect(ended).toBeLessThan(0.47)
  expect(ended).toBeGreaterThan(0.41)
  expect(await share(86_999)).toBeLessThan(1)
  expect(await share(93_000)).toBe(1)
})

test.each([
  ['a queue', () => risingQueue('pause')],
  ['a group', risingGroup],
])('several short pauses of %s, ended before their time or prolonged, hold its rise each', async (_, rising) => {
  const { queue, group, full, pause, resume } = await rising()
  const share = async (ms: number) => Math.round(((await queue.at(60_000 + ms).rate(group)) / full) * 1000) / 1000
  await share(6000)
  await pause(600_000)
  await share(16_000)
  await resume()
  // 10 s later than without the pause.
  expect([await share(16_000), await share(18_999), await share(19_000)]).toEqual([0.19, 0.19, 0.235])
  await share(20_000)
  await pause(20_000)
  await share(30_000)
  await pause(30_000)
  expect([await share(60_000), await share(61_999), await share(62_000)]).toEqual([0.235, 0.235, 0.28])
  // A minute or more: from the start again.
  await pause(40_000)
  await share(100_000)
  await pause(40_000)
  expect([await share(140_000), await share(143_000), await share(200_000)]).toEqual([0.1, 0.145, 1])
  // The rise is over: a short pause has none to hold.
  await pause(30_000)
  expect(await share(230_000)).toBe(1)
})

test('a group that is paused without end and released soon rises on where it was', async () => {
  const { queue, pause, resume } = await risingGroup()
  queue.at(78_000)
  await pause(Number.POSITIVE_INFINITY)
  queue.at(108_000)
  await resume()
  expect(await queue.rate('a')).toBe(3.7)
  expect(await queue.at(111_000).rate('a')).toBe(4.15)
})

test('a pause by feedback does the same without adapt', async () => {
  const queue = await clocked()
  await queue.refused(120_000)
  // Up to five seconds are added at random.
  expect(await queue.at(125_000).rate()).toBeLessThan(25)
  expect(await queue.at(190_000).rate()).toBe(100)
})

test('a group rises by itself, after a hold with an end and after one that is lifted', async () => {
  const queue = await clocked()
  await queue.setGroup({ limited: true }, 60_000)
  expect(await queue.at(60_000).rate('a')).toBe(1)
  expect(await queue.rate('b')).toBe(10)
  expect(await queue.at(90_000).rate('a')).toBeCloseTo(5.5, 1)
  expect(await queue.at(120_000).rate('a')).toBe(10)
  await queue.at(200_000).setGroup({ paused: true })
  await queue.at(270_000).setGroup({ paused: { clear: true } })
  expect(await queue.rate('a')).toBe(1)
  expect(await queue.at(300_000).rate('a')).toBeCloseTo(5.5, 1)
  expect(await queue.at(331_000).rate('a')).toBe(10)
  await queue.at(400_000).setGroup({ paused: true })
  await queue.at(410_000).setGroup({ paused: { clear: true } })
  expect(await queue.rate('a')).toBe(10)
})

test('without rampUp nothing rises slowly', async () => {
  const queue = await clocked({ rate: '100/s', groups: { rate: '10/s' } })
  await queue.pause(60_000)
  await queue.refused(120_000)
  await queue.setGroup({ limited: true }, 60_000)
  expect(await queue.at(60_000).rate('a')).toBe(10)
  expect(await queue.at(126_000).rate()).toBe(100)
})

test('a queue that rises says so', async () => {
  const queue = shop.queue(SHAPE)
  await queue.pauseUntil(new Date(Date.now() + 120_000), { by: 'ada', reason: 'a test' })
  const key = queue.toKey('meta:shape')
  const doc = JSON.parse((await client.hget(key, 'feedback')) as string)
  // It began long ago.
  doc.ramp.from -= 3_600_000
  await client.hset(key, 'feedback', JSON.stringify(doc))
  await queue.clearPause()
  const { rate, cause } = await queue.meter()
  expect([rate, cause]).toEqual(['10/s', 'rampUp'])
})

test('what rampUp may be is said by name', () => {
  for (const rampUp of [
    {},
    { from: 0, overMs: 1 },
    { from: 2, overMs: 1 },
    { from: 0.1, overMs: 0.5 },
    { from: 0.1 },
    7,
  ]) {
    expect(() => shop.queue({ rate: '1/s', rampUp } as Shape)).toThrow(InvalidShapeError)
  }
  expect(() => shop.queue({ rate: '1/s', rampUp: { from: 0.1, overMs: 0 } })).toThrow(
    'shape.rampUp must be { from: a number from 0.001 to 1, overMs: a whole number from 1 to 86400000 }',
  )
})
