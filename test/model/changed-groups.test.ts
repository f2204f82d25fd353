import { afterAll, expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { encodeGroupOverride, type GroupDefaults, type GroupOverride } from '../../src/shape/groups.ts'
import type { Rate } from '../groups/model/charges.ts'
import { chargeRate, reshapeRate, slotByRate } from '../keys/model/group-rate.ts'
import type { Group } from '../keys/model/group-turns.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { HeldQueue, START_US } from './held-queue.ts'

// What applies to a group changes many times while it starts no job, and nobody reads its bucket meanwhile. It starts
// jobs as a bucket does that knows of each change at its time.
const redis = useRedis(import.meta.url)
const queue = new HeldQueue(redis, redis.client(), 'changing', false)
afterAll(() => queue.close())

const HISTORIES = caseCount(60, 'MODEL_HISTORIES')
const SEED = Number(process.env.MODEL_SEED ?? 1)
const S = 1_000_000
const inGroup = { group: { id: 'a' } } as ShapedJobsOptions
const RATES = ['10/s', '2/s', '1/s', '12/min', '1/min'] as const

interface Settings {
  readonly rate?: (typeof RATES)[number]
  readonly burst?: number
  readonly weight?: number
}
/** A value that applies until a time, µs; the last one that has not ended counts. */
interface Entry {
  readonly value: Settings
  readonly untilUs: number
}

const override = (groups: GroupDefaults, ttlMs: number | '' = '') => queue.override({ groups }, ttlMs)

/** @param own undefined: all that was set for the group is lifted */
async function setGroup(own: GroupOverride | undefined, ttlMs: number | '' = ''): Promise<void> {
  const fields = own ? JSON.stringify(encodeGroupOverride(own)) : '{}'
  await queue.backend.store.run('set-group', ['a', fields, 'test', 'test', ttlMs, '1', ''])
}

const CLOCK = { schedule: [{ from: '00:00', to: '01:00', rate: 0 }, { rate: '10/s' }], timeZone: 'UTC' } as const
const [FAST, SLOW, BY_CLOCK] = [
  { rate: '10/s', burst: 10 },
  { rate: '1/min', burst: 10 },
  { rate: CLOCK, burst: 10 },
] as const
const [fast, slow, byClock] = [() => override(FAST), () => override(SLOW), () => override(BY_CLOCK)]
/** A group that has used its burst gets one unit back at most. */
const pass = () => queue.advanceTo(queue.nowUs + 20 * S)

type Story = readonly [what: string, groups: GroupDefaults, changes: readonly (() => Promise<void>)[]]
const STORIES: readonly Story[] = [
  ['that nobody met', FAST, [slow, pass, fast]],
  ['for a time', FAST, [() => override(SLOW, 20_000), pass]],
  ['before another change', FAST, [slow, pass, () => override({ ...SLOW, weight: 2 })]],
  ['of its own', FAST, [() => setGroup(SLOW), pass, () => setGroup(FAST)]],
  ['of its own for a time', FAST, [() => setGroup(SLOW, 20_000), pass]],
  ['after one of its own', FAST, [() => setGroup({ rate: '1/h' }, 1), slow, pass, fast]],
  ['in place of a schedule', BY_CLOCK, [slow, pass, byClock]],
  [
    'before more changes than are kept',
    FAST,
    [slow, pass, ...Array.from({ length: 10 }, (_, i) => () => override({ ...FAST, burst: 11 + i })), fast],
  ],
]

test.each(STORIES)('a group counts a lower rate %s', async (_what, groups, changes) => {
  await queue.reset({ groups })
  for (let i = 0; i < 20; i++) await queue.add(inGroup)
  expect((await queue.depart(20)).grants).toHaveLength(10)
  for (const change of changes) await change()
  expect((await queue.depart(20)).grants.length).toBeLessThanOrEqual(1)
})

test.each<[string, GroupOverride | undefined, readonly GroupDefaults[]]>([
  ['its burst', undefined, [{ rate: '1/min', burst: 2 }, { rate: '1/min' }]],
  ['the rate of others', { rate: '1/min' }, [{ rate: '9/s' }, { rate: '10/s' }]],
])('a group reaches its rate while %s changes much faster', async (_what, own, defaults) => {
  await queue.reset({ groups: { rate: '1/min' } })
  // The shape is stored with the first call.
  await queue.depart(1)
  if (own) await setGroup(own)
  for (let i = 0; i < 30; i++) await queue.add(inGroup)
  let starts = (await queue.depart(30)).grants.length
  for (let i = 0; i < 240; i++) {
    await queue.advanceTo(queue.nowUs + 5 * S)
    await override(defaults[i % 2] as GroupDefaults)
    starts += (await queue.depart(30)).grants.length
  }
  expect(starts).toBeGreaterThanOrEqual(19)
  expect(starts).toBeLessThanOrEqual(22)
})

test("a group counts its rate once while Redis's clock is back before a change of it", async () => {
  await queue.reset({ groups: { rate: '10/s' } })
  await queue.depart(1)
  await queue.add(inGroup)
  await queue.advanceTo(START_US + 5 * S)
  await override({ rate: '1/min' })
  await queue.advanceTo(START_US + 10 * S)
  expect((await queue.depart(10)).grants).toHaveLength(1)
  await queue.advanceTo(START_US - 55 * S)
  let starts = 0
  for (let i = 0; i < 50; i++) {
    starts += (await queue.depart(10)).grants.length
    await queue.advanceTo(queue.nowUs + S)
    await queue.add(inGroup)
  }
  expect(starts).toBeLessThanOrEqual(1)
})

test('a group counts a lower rate of the defaults while its own rate rises', async () => {
  await queue.reset({ groups: FAST, rampUp: { from: 0.1, overMs: 60_000 } })
  await queue.depart(1)
  for (let i = 0; i < 60; i++) await queue.add(inGroup)
  await queue.backend.store.run('set-group', ['a', '{"paused":true}', 'test', 'test', '', '', ''])
  await queue.advanceTo(queue.nowUs + 120 * S)
  await setGroup(undefined)
  await queue.advanceTo(queue.nowUs + S)
  expect((await queue.depart(10)).grants).toHaveLength(10)
  await queue.advanceTo(queue.nowUs + S)
  await slow()
  await queue.advanceTo(queue.nowUs + 18 * S)
  expect((await queue.depart(20)).grants.length).toBeLessThanOrEqual(2)
})

class History {
  readonly #uniform: () => number
  /** Whether settings of its own apply to the group; otherwise it has no rate at times. */
  readonly #hasOwn: boolean
  readonly #jobs: number[] = []
  #group = { name: 'a' } as Group
  #declared: Settings = {}
  #override: Entry | undefined
  /** Changes since its bucket was read. */
  #unmet = 0
  #own: Entry | undefined

  constructor(seed: number) {
    this.#uniform = randomOf(seed * 0x9e3779b9).uniform
    this.#hasOwn = this.#pick([false, true])
  }

  async run(): Promise<void> {
    this.#declared = this.#settings()
    await queue.reset({ groups: this.#declared as GroupDefaults })
    // The shape is stored with the first call.
    await queue.depart(1)
    for (let i = 0; i < 12; i++) {
      for (let n = this.#pick([0, 0, 1, 2, 4, 9]); n > 0; n--) await this.#change()
      await this.#leave()
    }
  }

  #pick<T>(of: readonly T[]): T {
    return of[Math.floor(this.#uniform() * of.length)] as T
  }

  #settings(): Settings {
    const rate = this.#pick(this.#hasOwn ? RATES : [...RATES, undefined])
    return { ...(rate && { rate }), burst: this.#pick([1, 1, 5, 20]), weight: this.#pick([1, 2]) }
  }

  /** What applies to the group now. */
  #current() {
    const { rate, burst = 1 } = { ...(this.#override?.value ?? this.#declared), ...this.#own?.value }
    const [limit, unit] = (rate ?? '').split('/')
    return { rate: rate ? ([Number(limit), unit === 's' ? 1000 : 60_000] as Rate) : null, burst }
  }

  /** @param reads whether the bucket of the group is read: none is filled before the first job leaves */
  #apply(atUs: number, reads: boolean, change: () => void): void {
    const group = this.#group
    // Of changes before its last slot, which was granted ahead, only the last one counts.
    const counts = reads || (group.bucket && group.bucket.last < atUs)
    if (counts && group.bucket) reshapeRate(group, this.#current(), group.bucket.last)
    if (counts) reshapeRate(group, this.#current(), atUs)
    change()
    if (counts) reshapeRate(group, this.#current(), atUs)
    this.#unmet = reads ? 0 : this.#unmet + 1
  }

  /** µs since the start: a number that has room for fractions. */
  get #now(): number {
    return queue.nowUs - START_US
  }

  async #pass(us: number): Promise<void> {
    const nowUs = this.#now + us
    for (;;) {
      const ends = Math.min(this.#override?.untilUs ?? Infinity, this.#own?.untilUs ?? Infinity)
      if (ends > nowUs) break
      this.#apply(ends, false, () => {
        if (this.#override?.untilUs === ends) this.#override = undefined
        if (this.#own?.untilUs === ends) this.#own = undefined
      })
    }
    await queue.advanceTo(START_US + nowUs)
  }

  async #change(): Promise<void> {
    await this.#pass(Math.floor(this.#uniform() ** 3 * 30 * S))
    const ttlMs = this.#pick(['', 100, 3000, 20_000] as const)
    const nowMs = Math.floor(queue.nowUs / 1000)
    const untilUs = ttlMs === '' ? Infinity : (nowMs + ttlMs) * 1000 - START_US
    const value = this.#settings()
    // No more are kept, with the ends of this one and of the one before.
    if (this.#unmet > 4) return
    if (!this.#hasOwn || this.#uniform() < 0.6) {
      await override(value as GroupDefaults, ttlMs)
      this.#apply(this.#now, false, () => (this.#override = { value, untilUs }))
      return
    }
    const isLifted = this.#uniform() < 0.3
    const { rate } = value
    const own = this.#pick([{ weight: 3 }, { burst: value.burst as number }, rate ? { rate } : { weight: 2 }] as const)
    await setGroup(isLifted ? undefined : own, ttlMs)
    this.#apply(this.#now, true, () => (this.#own = isLifted ? undefined : { value: own, untilUs }))
  }

  async #leave(): Promise<void> {
    const cost = Math.min(this.#pick([1, 1, 0.5, 3]), this.#current().burst)
    const count = this.#pick([1, 3, 25])
    for (let i = 0; i < count; i++) {
      await queue.add({ ...inGroup, cost } as ShapedJobsOptions)
      this.#jobs.push(cost)
    }
    for (let i = this.#pick([1, 1, 3]); i > 0; i--) {
      await this.#pass(Math.floor(this.#uniform() ** 3 * 40 * S))
      const horizonUs = this.#pick([0, 0, 50_000, 10 * S])
      const { grants } = await queue.depart(count, horizonUs)
      expect(grants.map(({ slotUs }) => slotUs - START_US)).toEqual(this.#due(count, horizonUs))
    }
  }

  #due(count: number, horizonUs: number): number[] {
    const left: number[] = []
    const settings = this.#current()
    const nowUs = this.#now
    if (this.#group.bucket) reshapeRate(this.#group, settings, this.#group.bucket.last)
    while (left.length < count && this.#jobs[0] !== undefined) {
      const slotUs = Math.max(nowUs, slotByRate(this.#group, settings, this.#jobs[0], nowUs))
      if (slotUs > nowUs + horizonUs) break
      chargeRate(this.#group, settings, this.#jobs.shift() as number, slotUs, nowUs)
      left.push(slotUs)
      this.#unmet = 0
    }
    return left
  }
}

test(`a group counts each of its rates, ${HISTORIES} times`, { timeout: 600_000 }, async () => {
  for (let seed = SEED; seed < SEED + HISTORIES; seed++) {
    try {
      await new History(seed).run()
    } catch (error) {
      throw new Error(`seed ${seed}: ${(error as Error).message}`)
    }
  }
})
