import { expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import { InvalidShapeError, type RampUp, type Shape } from '../../src/index.ts'
import { encodeShape } from '../../src/shape/shape.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { type Operation, Replayer } from '../model/replay.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, jobs, Workshop } from '../worker/support.ts'

// How rates rise after idle stretches: the scripts of lua/ beside a ramp in plain TypeScript.
const redis = useRedis(import.meta.url)
const client = redis.client()
const shop = new Workshop(redis)
/** Whole seconds, so that the reference may count from here: doubles are exact to a quarter of a µs since 1970. */
const START_US = 1_764_000_000_000_000
const STORIES = caseCount(25, 'RAMP_STORIES')

/** The share of the rate, so long (ms) after a ramp began: that of its step, of twenty. */
function shareAt({ from, overMs, shape }: RampUp, ms: number): number {
  const step = Math.max(0, Math.floor((20 * ms) / overMs))
  if (step >= 20) return 1
  return shape === 'exponential' ? from ** (1 - step / 20) : from + ((1 - from) * step) / 20
}

/** A pause of the meter, ms. */
interface Pause {
  readonly fromMs: number
  readonly endsMs: number
  /** How far the rate had risen before; undefined: it did not rise. */
  readonly roseMs: number | undefined
}

/** A bucket whose rate rises after it was idle, or paused for a minute. Times are µs from the start. */
class RisingBucket {
  readonly #full: number
  readonly #burst: number
  readonly #rises: RampUp
  #interval: number
  #tat = 0
  #last = 0
  #hasLeft = false
  #pausedUntilMs = 0
  #pause: Pause | undefined
  /** When the ramp began, without the short pauses since, ms; infinite while it rests; undefined without one. */
  #sinceMs: number | undefined

  constructor(intervalUs: number, burst: number, rises: RampUp) {
    this.#full = intervalUs
    this.#interval = intervalUs
    this.#burst = burst
    this.#rises = rises
  }

  grant(nowUs: number, costs: readonly number[], horizonUs: number): number[] {
    this.#passTo(nowUs)
    const slots: number[] = []
    for (const cost of costs) {
      const counted = Math.min(cost, this.#burst)
      const conforms = this.#tat + (counted - this.#burst) * this.#interval
      const slot = Math.max(nowUs, this.#pausedUntilMs * 1000, this.#last, conforms)
      if (Math.ceil(slot) > nowUs + horizonUs) break
      slots.push(slot)
      this.#last = slot
      this.#tat = Math.max(this.#tat, slot) + cost * this.#interval
    }
    this.#hasLeft ||= slots.length > 0
    const [first] = slots
    if (first !== undefined && this.#rests) this.#sinceMs = Math.ceil(Math.ceil(first) / 1000)
    return slots
  }

  pause(nowUs: number, endsMs: number): void {
    this.#passTo(nowUs)
    if (endsMs <= this.#pausedUntilMs) return
    this.#pausedUntilMs = endsMs
    const nowMs = Math.floor(nowUs / 1000)
    const known = this.#pause && this.#pause.endsMs > nowMs ? this.#pause : undefined
    const roseMs = this.#sinceMs === undefined ? undefined : nowMs - this.#sinceMs
    if (!this.#rests) this.#holdFor(known ? { ...known, endsMs } : { fromMs: nowMs, endsMs, roseMs }, nowUs)
  }

  resume(nowUs: number): void {
    this.#passTo(nowUs)
    this.#pausedUntilMs = 0
    const nowMs = Math.floor(nowUs / 1000)
    if (this.#pause && this.#pause.endsMs > nowMs && !this.#rests)
      this.#holdFor({ ...this.#pause, endsMs: nowMs }, nowUs)
  }

  /** A minute or more begins the ramp again; less holds it. */
  #holdFor(pause: Pause, nowUs: number): void {
    const { fromMs, endsMs, roseMs } = pause
    this.#pause = pause
    if (endsMs - fromMs >= 60_000) this.#sinceMs = endsMs
    else this.#sinceMs = roseMs === undefined ? undefined : endsMs - roseMs
    this.#take(this.#intervalAt(Math.max(nowUs / 1000, endsMs)), nowUs)
  }

  get #rests(): boolean {
    return this.#sinceMs === Number.POSITIVE_INFINITY
  }

  #intervalAt(ms: number): number {
    return onGrid(this.#full / (this.#sinceMs === undefined ? 1 : shareAt(this.#rises, ms - this.#sinceMs)))
  }

  #passTo(nowUs: number): void {
    this.#rise(nowUs)
    const { from, afterIdleMs } = this.#rises
    if (afterIdleMs === undefined || this.#rests) return
    const restsUs = afterIdleMs * 1000 + this.#burst * Math.max(this.#interval, this.#full / from)
    if (this.#hasLeft && (nowUs - this.#last < restsUs || Math.ceil(this.#tat) > nowUs)) return
    this.#pause = undefined
    this.#sinceMs = Number.POSITIVE_INFINITY
    this.#take(onGrid(this.#full / from), nowUs)
  }

  /** Each step, when it begins: debts are kept in units. */
  #rise(nowUs: number): void {
    for (let step = 1; step <= 20; step++) {
      const ms = Math.ceil((this.#sinceMs ?? Number.POSITIVE_INFINITY) + (step * this.#rises.overMs) / 20)
      const isOn = ms * 1000 <= nowUs && ms > (this.#pause?.endsMs ?? 0)
      if (isOn) this.#take(Math.min(this.#interval, this.#intervalAt(ms)), ms * 1000)
      if (isOn && step === 20) this.#sinceMs = undefined
    }
  }

  #take(interval: number, atUs: number): void {
    const from = Math.max(atUs, this.#last)
    this.#tat = from + onGrid((Math.max(0, this.#tat - from) / this.#interval) * interval)
    this.#interval = interval
  }
}

/** Intervals and debts are whole 1/1024 µs, rounded up. */
function onGrid(us: number): number {
  return Math.ceil(us * 1024) / 1024
}

type Deed =
  | { readonly what: 'depart'; readonly costs: readonly number[]; readonly horizonUs: number }
  | { readonly what: 'pause'; readonly endsMs: number }
  | { readonly what: 'resume' }

interface Story {
  readonly shape: Shape
  readonly intervalUs: number
  readonly rises: RampUp
  readonly deeds: readonly (Deed & { readonly nowUs: number })[]
}

/** Bursts of jobs, stretches without any, and pauses, of workers with different horizons. */
function storyOf(seed: number): Story {
  const { uniform } = randomOf(seed * 7919 + 1)
  const pick = <T>(...of: readonly T[]): T => of[Math.floor(uniform() * of.length)] as T
  const [periodMs, burst] = [pick(20, 100, 700), pick(1, 1, 4)]
  const afterIdleMs = pick(1000, 5000, 60_000, 60_000)
  const rises: Story['rises'] = {
    ...{ from: pick(0.1, 0.5, 0.013), overMs: pick(2000, 60_000, 7777) },
    ...(uniform() < 0.75 ? { afterIdleMs } : {}),
    ...(uniform() < 0.5 ? { shape: pick('linear', 'exponential') } : {}),
  }
  let nowUs = START_US
  const deeds = Array.from({ length: 250 }, () => {
    const idleUs = afterIdleMs * 1000 * pick(0.9, 1, 1.1, 3)
    nowUs += Math.floor(uniform() < 0.05 ? idleUs : uniform() * pick(periodMs, periodMs, rises.overMs / 20) * 3000)
    const costs = Array.from({ length: pick(0, 1, 1, 3, 8) }, () => 1 + Math.floor(uniform() * burst))
    const pausedMs = pick(1, 500, 5000, 30_000, 59_999, 60_000, 61_234)
    const special = uniform()
    if (special < 0.05) return { what: 'pause', nowUs, endsMs: Math.floor(nowUs / 1000) + pausedMs } as const
    if (special < 0.08) return { what: 'resume', nowUs } as const
    return { what: 'depart', nowUs, costs, horizonUs: pick(0, 50_000, 200_000, 3_000_000) } as const
  })
  return {
    shape: { rate: { limit: 1, period: periodMs }, burst, rampUp: rises },
    intervalUs: periodMs * 1000,
    rises,
    deeds,
  }
}

test(`${STORIES} stories of pauses and idle stretches leave by the ramps of the reference, to the microsecond`, async () => {
  const replayer = new Replayer(client)
  let ramps = 0
  for (let seed = 1; seed <= STORIES; seed++) {
    const { shape, intervalUs, rises, deeds } = storyOf(seed)
    const base = `${redis.prefix}:i${seed}:`
    const run = '1'
    const fields = { mode: 'enforce', onStateLoss: 'hold', horizonMs: 50, ...encodeShape(shape).fields } as never
    const operations: Operation[] = [{ what: 'declare', fields, now: START_US, run }]
    const reference = new RisingBucket(intervalUs, shape.burst ?? 1, rises)
    const expected: (readonly number[] | undefined)[] = []
    let waiting: number[] = []
    for (const deed of deeds) {
      const { nowUs } = deed
      const at = nowUs - START_US
      if (deed.what === 'pause') {
        operations.push({ what: 'pause', kind: 'until', ms: deed.endsMs, now: nowUs, run })
        expected.push(undefined)
        reference.pause(at, deed.endsMs - START_US / 1000)
        continue
      }
      if (deed.what === 'resume') {
        operations.push({ what: 'pause', kind: 'clear', ms: 0, now: nowUs, run })
        expected.push(undefined)
        reference.resume(at)
        continue
      }
      const { costs, horizonUs } = deed
      const jobs = costs.map((cost, i) => ({ id: String(operations.length * 10 + i), cost }))
      waiting = [...waiting, ...costs]
      operations.push({ what: 'depart', jobs, asked: 100, horizonUs, now: nowUs, run })
      const slots = reference.grant(at, waiting.slice(0, 100), horizonUs)
      expected.push(slots)
      waiting = waiting.slice(slots.length)
    }
    const outcomes = (await replayer.replay(base, operations)).slice(1)
    for (const [i, { reply }] of outcomes.entries()) {
      const wanted = expected[i]?.map((us) => START_US + Math.ceil(us))
      if (!wanted) continue
      const found = (reply as [[string, string][]])[0].map(([, slot]) => Number(slot))
      const isSame = found.length === wanted.length && found.every((slot, at) => slot === wanted[at])
      expect(isSame, `seed ${seed}, deed ${i}: ${found} instead of ${wanted}`).toBe(true)
    }
    ramps += Number((await client.hget(`${base}meta:shape`, 'rev')) ?? 0)
    await client.unlink(...(await client.keys(`${base}*`)))
  }
  expect(ramps).toBeGreaterThan(STORIES)
})

const IDLE = { from: 0.1, overMs: 20_000, afterIdleMs: 30_000 } as const

/** Units a second at which two jobs leave, one right behind the other. */
async function paceOf(queue: HeldQueue, group?: string): Promise<number> {
  const opts = group === undefined ? {} : { group: { id: group } }
  for (let i = 0; i < 2; i++) await queue.add(opts as never)
  const [first, second] = await queue.drain(1, 0)
  return Math.round(1e8 / ((second?.slotUs ?? 0) - (first?.slotUs ?? 0))) / 100
}

test('the queue, each group by itself and a queue that lost its state begin slowly', async () => {
  const queue = new HeldQueue(redis, client, 'held')
  await queue.reset({ rate: '10/s', rampUp: IDLE })
  expect(await paceOf(queue)).toBe(1)
  await queue.advanceTo(queue.nowUs + 21_000_000)
  expect(await paceOf(queue)).toBe(10)
  await queue.advanceTo(queue.nowUs + 29_000_000)
  expect(await paceOf(queue)).toBe(10)
  await queue.advanceTo(queue.nowUs + 31_000_000)
  expect(await paceOf(queue)).toBe(1)
  await queue.advanceTo(queue.nowUs + 21_000_000)
  await client.del(`${queue.base}meta:meter`)
  expect((await queue.drain(1, 0)).length).toBe(0)
  await queue.advanceTo(queue.nowUs + 12_000_000)
  expect(await paceOf(queue)).toBe(1)

  // The worker that started the first job asks again when the first step of the ramp ends, not at the slot of then.
  await queue.reset({ rate: '10/s', rampUp: { ...IDLE, overMs: 2000 } })
  for (let i = 0; i < 2; i++) await queue.add()
  expect(((await queue.depart(2, 50_000)).wakeUs ?? 0) - queue.nowUs).toBeLessThanOrEqual(101_000)

  await queue.reset({ groups: { rate: '10/s' }, rampUp: { ...IDLE, shape: 'exponential' } })
  expect(await paceOf(queue, 'a')).toBe(1)
  await queue.advanceTo(queue.nowUs + 9_100_000)
  expect(await paceOf(queue, 'a')).toBeCloseTo(3.16, 2)
  expect(await paceOf(queue, 'b')).toBe(1)
  await queue.advanceTo(queue.nowUs + 12_000_000)
  expect(await paceOf(queue, 'a')).toBe(10)
  await queue.advanceTo(queue.nowUs + 31_000_000)
  expect(await paceOf(queue, 'a')).toBe(1)
  await queue.close()
})

test('the rate of a group that rested rises from its first slot, not from the call that granted it ahead', async () => {
  const queue = new HeldQueue(redis, client, 'ahead')
  await queue.reset({ groups: { rate: '10/s' }, rampUp: { ...IDLE, overMs: 2000 } })
  const group = { group: { id: 'a' } } as never
  await queue.add(group)
  await queue.drain(1, 0)
  await queue.advanceTo(queue.nowUs + 40_000_000)
  await queue.backend.store.changeGroup('a', { limited: true }, { by: 'ada', reason: 'a test' }, 5000)
  for (let i = 0; i < 2; i++) await queue.add(group)
  await queue.advanceTo(queue.nowUs + 2_100_000)
  const [first] = (await queue.depart(2, 3_000_000)).grants
  await queue.advanceTo(first?.slotUs ?? 0)
  const [second] = await queue.drain(1, 0)
  // At its whole rate, the second job would leave after 0.1 s.
  expect((second?.slotUs ?? 0) - (first?.slotUs ?? 0)).toBeGreaterThan(300_000)
  await queue.close()
})

test('after a pause of BullMQ that a worker has noted the rate rises, also without afterIdleMs', async () => {
  const queue = new HeldQueue(redis, client, 'stock')
  await queue.reset({ rate: '10/s', rampUp: { from: 0.1, overMs: 60_000 } })
  expect(await paceOf(queue)).toBe(10)
  for (const [pausedUs, rate] of [
    [59_000_000, 10],
    [60_000_000, 1],
  ] as const) {
    await queue.queue.pause()
    await queue.add()
    expect((await queue.depart(1)).stop).toBe('halted')
    await queue.advanceTo(queue.nowUs + pausedUs)
    await queue.queue.resume()
    expect(await paceOf(queue)).toBe(rate)
    await queue.advanceTo(queue.nowUs + 120_000_000)
  }
  await queue.close()
})

test('a short pause of BullMQ that a worker has noted holds the rise', async () => {
  const queue = new HeldQueue(redis, client, 'stock')
  await queue.reset({ rate: '10/s', rampUp: { from: 0.1, overMs: 60_000 } })
  const { store } = queue.backend
  await store.pause({ kind: 'for', ms: 60_000, reason: 'a test' })
  await queue.advanceTo(queue.nowUs + 60_000_000 + 19_000_000)
  expect(await paceOf(queue)).toBe(3.7)
  for (const [pausedUs, rate] of [
    [50_000_000, 3.7],
    [50_000_000, 3.7],
    [60_000_000, 1],
  ] as const) {
    await queue.queue.pause()
    await queue.add()
    expect((await queue.depart(1)).stop).toBe('halted')
    await queue.advanceTo(queue.nowUs + pausedUs)
    await queue.queue.resume()
    expect(await paceOf(queue)).toBe(rate)
  }
  await queue.close()
})

test('a queue that rests says so, and one without rampUp reads nothing for it', async () => {
  const queue = shop.queue({ rate: '10/s', rampUp: IDLE })
  await queue.waitUntilReady()
  const { rate, cause } = await queue.meter()
  expect([rate, cause]).toEqual(['1/s', 'rampUp'])
  await queue.setShape({ rampUp: null }, { by: 'ada', reason: 'a test' })
  expect(await queue.meter()).toMatchObject({ rate: '10/s', cause: 'declared' })
})

test('three workers that sleep between slots follow a ramp: never above it, and not at its first step until the end', async () => {
  const rampUp = { from: 0.02, overMs: 1000, afterIdleMs: 60_000 }
  // No slot is given up by a job that a busy machine starts late: the first one seen is the first of the ramp.
  const queue = shop.queue({ rate: '20/s', rampUp, maxLatenessMs: 60_000 })
  await queue.addBulk(jobs(14))
  const workers = [1, 2, 3].map(() => shop.worker(queue, async () => {}, { concurrency: 2 }))
  const departures = departuresOf(...workers)
  await departures.reach(14)
  const slots = departures.all.map(({ departureTimeUs }) => departureTimeUs).toSorted((one, other) => one - other)
  const [first = 0] = slots
  // The area under the straight line, in units.
  const most = (us: number) => {
    const [rise, rest] = [Math.min(us, 1e6) / 1e6, Math.max(0, us - 1e6) / 1e6]
    return 1 + 20 * (0.02 * rise + 0.49 * rise * rise + rest)
  }
  for (const [i, slot] of slots.entries()) expect(i + 1).toBeLessThanOrEqual(most(slot - first) + 1e-6)
  // At the first step the second job would wait for 2.5 s, in place of 0.3.
  expect((slots[1] ?? 0) - first).toBeLessThan(2_400_000)
})

test('what the options of rampUp may be is said by name', () => {
  const shape = (rampUp: object) => () => encodeShape({ rate: '1/s', rampUp } as Shape)
  expect(shape({ ...IDLE, shape: 'round' })).toThrow(
    "shape.rampUp.shape must be 'linear' or 'exponential'; got \"round\"",
  )
  expect(shape({ ...IDLE, afterIdleMs: 0 })).toThrow('shape.rampUp.afterIdleMs must be a whole number >= 1; got 0')
  expect(shape({ ...IDLE, to: 1 })).toThrow("shape.rampUp has no field 'to'; it has from, overMs, shape, afterIdleMs")
  expect(shape({ ...IDLE, to: 1 })).toThrow(InvalidShapeError)
})
