import { expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { QueueLimit, RampUp, Shape } from '../../src/index.ts'
import { type Combination, combinationOf } from '../model/combination.ts'
import { type Departed, Fleet } from '../model/fleet.ts'
import type { Waiting } from '../model/schedule.ts'
import { VirtualScripts, VirtualWorld } from '../model/virtual-redis.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'

// rampUp and warmUp together, with groups, limits by keys, schedules, pauses, retries, a restart of Redis, and workers that
// leave or are killed: bounds that hold whatever else happens.
const redis = useRedis(import.meta.url)
const scripts = new VirtualScripts(redis.client())

const STORIES = caseCount(60, 'RAMP_CROSSINGS')
const SEED = Number(process.env.MODEL_SEED ?? 1)
const S = 1_000_000
/** In Singapore. */
const MIDNIGHT_US = 1_764_000_000 * S
const ZONE = 'Asia/Singapore'
const GROUPS = ['a', 'b', 'c']
/** Of the number of a job, for units that are counted. */
const SLACK = 0.001

interface Story extends Pick<Combination, 'startUs' | 'workers' | 'locks'> {
  readonly shape: Shape
  readonly jobs: readonly Waiting[]
  readonly perSecond: number
  readonly perGroup: number
  readonly perHost: number
  readonly rampUp: RampUp
  /** Quotas of the first day, and of the second. */
  readonly plan: readonly [number, number]
  /** A pause of a minute from the start, or one of less. */
  readonly pause: { readonly atUs: number; readonly endsUs: number } | undefined
  readonly restartUs: number | undefined
  /** Whether nothing may leave in the first minute of the second day. */
  readonly closes: boolean
}

function storyOf(seed: number): Story {
  const { uniform } = randomOf(seed * 15_487_469 + 3)
  const pick = <T>(...of: readonly T[]): T => of[Math.floor(uniform() * of.length)] as T
  const { workers, locks, jobs: drawn, startUs: drawnUs } = combinationOf(seed)
  const perSecond = pick(5, 20, 100)
  const [perGroup, perHost] = [perSecond * 0.6, perSecond * 0.8]
  const backoffUs = pick(20_000, 2 * S)
  const fails = (i: number) => (i % 7 === 3 ? 1 + Math.floor(uniform() * 2) : 0)
  const lastsUs = Math.round((1.5 * drawn.length * S) / perSecond)
  const isLong = uniform() < 0.4
  const longUs = isLong ? 61 * S : 0
  const startUs = MIDNIGHT_US - Math.round(lastsUs * (0.5 + 0.6 * uniform())) - longUs
  const jobs = drawn.map(
    ({ runsUs, atUs }, i): Waiting => ({
      ...{ cost: 1, runsUs, fails: fails(i), backoffUs, group: GROUPS[i % 3], keys: { host: pick('x', 'y') } },
      ...(atUs === undefined || i < 3 ? {} : { atUs: atUs - drawnUs + startUs }),
    }),
  )
  const rampUp: RampUp = {
    ...{ from: pick(0.05, 0.2), overMs: Math.ceil((lastsUs * pick(0.3, 1)) / 1000) },
    ...(uniform() < 0.3 && { shape: 'exponential' }),
    ...(!isLong && { afterIdleMs: 600_000 }),
  }
  const closes = uniform() < 0.3
  const rate = { limit: perSecond, period: 1000 }
  const plan = [Math.ceil(jobs.length / 6), 10 * jobs.length] as const
  const limits: readonly QueueLimit[] = [
    { name: 'perHost', by: 'host', algorithm: 'gcra', rate: { limit: perHost, period: 1000 }, burst: 2 },
    ...[
      {
        name: 'warm-up',
        by: 'group',
        timeZone: ZONE,
        warmUp: { plan: plan.map((quota, i) => ({ day: i + 1, quota })) },
      },
    ],
  ]
  const atUs = startUs + longUs + Math.round(lastsUs * 0.6 * uniform())
  const short = { atUs, endsUs: Math.ceil((atUs + lastsUs * (0.1 + 0.4 * uniform())) / 1000) * 1000 }
  const long = { atUs: startUs, endsUs: startUs + longUs - (startUs % 1000) }
  return {
    ...{ startUs, workers, locks, jobs, perSecond, perGroup, perHost, rampUp, plan, closes },
    pause: isLong ? long : pick(undefined, short),
    restartUs: !isLong && uniform() < 0.3 ? Math.round(startUs + lastsUs * uniform()) : undefined,
    shape: {
      rate: closes ? { schedule: [{ from: '00:00', to: '00:01', rate: 0 }, { rate }], timeZone: ZONE } : rate,
      ...{ burst: pick(1, 3), rampUp, limits, groups: { rate: { limit: perGroup, period: 1000 } } },
      horizonMs: pick(20, 100, 500),
    },
  }
}

/** The curve above the steps, so long after a ramp began. */
function shareAt({ from, overMs, shape }: RampUp, us: number): number {
  const part = Math.min(1, Math.max(0, us / 1000 / overMs))
  return shape === 'exponential' ? from ** (1 - part) : from + (1 - from) * part
}

/** What the curve lets leave between two times, as parts of the time, µs. */
function areaOf(rampUp: RampUp, from: number, to: number): number {
  const pieces = 200
  const width = (to - from) / pieces
  let sum = 0
  for (let i = 0; i < pieces; i++) sum += width * shareAt(rampUp, from + (i + 1) * width)
  return sum
}

/** More than the bound left in a window that begins and ends with a departure, if so. @param most by the times, units */
function aboveIn(
  slots: readonly number[],
  burst: number,
  most: (fromUs: number, toUs: number) => number,
): string | undefined {
  for (const [i, fromUs] of slots.entries()) {
    for (let j = i + 1; j < slots.length; j++) {
      const [left, allowed] = [j - i + 1, burst + most(fromUs, slots[j] as number)]
      if (left > allowed + SLACK) return `${left} left from ${fromUs} to ${slots[j]}, where ${allowed.toFixed(3)} may`
    }
  }
  return undefined
}

/** When the ramp of these departures began or begins again, µs. */
function beginsOf({ restartUs, pause, rampUp }: Story, departed: readonly Departed[]): number[] {
  if (rampUp.afterIdleMs === undefined) return [pause?.endsUs as number]
  const first = departed[0]?.slotUs as number
  const later = departed.find(({ grantedUs }) => restartUs !== undefined && grantedUs >= restartUs)?.slotUs
  return later === undefined ? [first] : [first, later]
}

/** @param held whether the pause holds the ramp */
function rampArea(story: Story, begins: readonly number[], held: boolean): (fromUs: number, toUs: number) => number {
  const { rampUp, pause } = story
  // Times of ramps are whole ms.
  const early = 2000
  return (fromUs, toUs) => {
    let sum = 0
    const cuts = [fromUs, ...begins, ...(held && pause ? [pause.atUs, pause.endsUs] : []), toUs]
    const inside = cuts.filter((us) => us >= fromUs && us <= toUs).sort((one, other) => one - other)
    for (let i = 1; i < inside.length; i++) {
      const [from, to] = [inside[i - 1] as number, inside[i] as number]
      const began = begins.findLast((us) => us <= from)
      if (began === undefined) {
        sum += to - from
        continue
      }
      const isIn = held && pause !== undefined && pause.atUs >= began
      const shift = isIn && from >= pause.endsUs ? pause.endsUs - pause.atUs : 0
      const stands = isIn && from >= pause.atUs && from < pause.endsUs
      const since = began + shift - early
      sum += stands ? (to - from) * shareAt(rampUp, pause.atUs - since) : areaOf(rampUp, from - since, to - since)
    }
    return sum
  }
}

function failureOf(story: Story, fleet: Fleet): string | undefined {
  const { shape, jobs, plan, closes, perSecond, perGroup, perHost, rampUp, pause } = story
  const departed = [...fleet.departed].sort((one, other) => one.slotUs - other.slotUs)
  const of = (is: (job: Waiting) => boolean) => departed.filter(({ number }) => is(jobs[number] as Waiting))
  const slotsOf = (some: readonly Departed[]) => some.map(({ slotUs }) => slotUs)
  const early = departed.find(({ slotUs, startedUs }) => startedUs < slotUs)
  if (early) return `job ${early.number} started before its slot`
  const { burst = 1 } = shape
  const area = rampArea(
    story,
    beginsOf(story, departed),
    rampUp.afterIdleMs === undefined ? false : pause !== undefined,
  )
  const found =
    aboveIn(slotsOf(departed), burst, (from, to) => ((to - from) * perSecond) / S) ??
    aboveIn(slotsOf(departed), burst, (from, to) => (area(from, to) * perSecond) / S)
  if (found) return `the queue: ${found}`
  for (const host of ['x', 'y']) {
    const above = aboveIn(slotsOf(of(({ keys }) => keys?.host === host)), 2, (from, to) => ((to - from) * perHost) / S)
    if (above) return `host ${host}: ${above}`
  }
  for (const group of GROUPS) {
    const own = of((job) => job.group === group)
    // A pause of the queue is none of a group.
    const rises = rampUp.afterIdleMs !== undefined && own[0] !== undefined
    const begins = rampArea(story, rises ? [own[0]?.slotUs as number] : [], false)
    const above = aboveIn(slotsOf(own), 1, (from, to) => (begins(from, to) * perGroup) / S)
    if (above) return `group ${group}: ${above}`
    const today = own.filter(({ slotUs }) => slotUs < MIDNIGHT_US).length
    const most = today === 0 ? plan[0] : plan[1]
    if (today > plan[0] || own.length - today > most) return `group ${group}: ${today} on day 1, ${own.length} in all`
    // Its plan begins on the second day: the rest waits for the third.
    if (today === 0 && own.length === plan[0]) return undefined
  }
  if (closes) {
    const isClosed = ({ slotUs }: Departed) => slotUs >= MIDNIGHT_US && slotUs < MIDNIGHT_US + 60 * S
    if (departed.some(isClosed)) return 'a job left while the schedule was closed'
  }
  if (pause && departed.some(({ slotUs, grantedUs }) => grantedUs > pause.atUs && slotUs < pause.endsUs))
    return 'a job left in the pause'
  return fleet.ended === jobs.length ? undefined : `only ${fleet.ended} of ${jobs.length} jobs ended`
}

test(
  `${STORIES} stories of rising rates and plans with groups, keys, schedules, pauses, retries, restarts and workers stay below all bounds`,
  async () => {
    const failures: string[] = []
    const runOne = async (seed: number) => {
      const story = storyOf(seed)
      const base = `${redis.prefix}:r${seed}:`
      const { startUs, jobs, locks, shape, workers, pause, restartUs, rampUp, perSecond } = story
      const world = new VirtualWorld(base, scripts, startUs)
      const fleet = new Fleet(base, world, { jobs, startUs, uniform: randomOf(seed).uniform, locks })
      await fleet.begin(shape, workers)
      if (pause) fleet.pause(pause.atUs, pause.endsUs)
      if (restartUs !== undefined) fleet.restart(restartUs)
      const lastsUs = (8 * jobs.length * S) / perSecond + 2 * rampUp.overMs * 1000
      await Fleet.run([fleet], Math.max(startUs, MIDNIGHT_US) + lastsUs + 240 * S)
      const failure = failureOf(story, fleet)
      if (failure) failures.push(`MODEL_SEED=${seed} RAMP_CROSSINGS=1: ${failure}`)
      const keys = await scripts.client.keys(`${base}*`)
      if (keys.length > 0) await scripts.client.unlink(...keys)
    }
    const seeds = Array.from({ length: STORIES }, (_, i) => SEED + i)
    const runOn = async () => {
      for (let seed = seeds.shift(); seed !== undefined; seed = seeds.shift()) await runOne(seed)
    }
    await Promise.all(Array.from({ length: 4 }, runOn))
    expect(failures.length, failures.slice(0, 20).join('\n')).toBe(0)
  },
  60_000 + STORIES * 10_000,
)
