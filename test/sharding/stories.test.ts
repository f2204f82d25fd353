import { expect, test } from 'vitest'
import { worstWindow } from '../../src/testing/worst-window.ts'
import { VirtualScripts } from '../model/virtual-redis.ts'
import { someOf } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { type Plot, Story } from './support/story.ts'

const redis = useRedis(import.meta.url)
const scripts = new VirtualScripts(redis.client())
const STORIES = Number(process.env.SHARDING_STORIES ?? 1)
const SEED = Number(process.env.SHARDING_SEED ?? 1)
/** A lease that a shard has is over by then, whatever is set meanwhile. */
const LEASE_US = 2_050_000
/** By then, all coordinators and masters that died or stood still are back, or have been replaced. */
const SETTLED_US = 15_000_000
/** Slots are whole microseconds. */
const TOLERANCE_US = 2

const QUIET = { lost: 0, slow: 0, deaths: 0, freezes: 0, losses: 0, failovers: 0, steps: 'none' } as const
const PLOTS: Readonly<Record<string, Omit<Plot, 'seed'>>> = {
  'nothing goes wrong': { ...QUIET, shards: 3, rate: 90, seconds: 5, load: 1.2, coordinators: 2 },
  'coordinators die and stop': {
    ...{ ...QUIET, shards: 3, rate: 40, seconds: 7, load: 1, coordinators: 3 },
    ...{ deaths: 4, freezes: 4 },
  },
  'calls are lost and late': {
    ...{ ...QUIET, shards: 4, rate: 40, seconds: 7, load: 1, coordinators: 3 },
    ...{ lost: 50, slow: 80, freezes: 2 },
  },
  'slots are granted far ahead': {
    ...{ ...QUIET, shards: 3, rate: 100, seconds: 5, load: 1.5, coordinators: 2 },
    horizonMs: 450,
  },
  'ledgers and shapes are lost': {
    ...{ ...QUIET, shards: 3, rate: 40, seconds: 7, load: 1, coordinators: 2 },
    ...{ lost: 10, slow: 10, losses: 6 },
  },
  'masters of shards die, and their replicas take over': {
    ...{ ...QUIET, shards: 3, rate: 60, seconds: 7, load: 1.2, coordinators: 2 },
    ...{ deaths: 1, failovers: 4 },
  },
  'what the whole allows is lowered and raised': {
    ...{ ...QUIET, shards: 4, rate: 60, seconds: 9, load: 1.2, coordinators: 3 },
    ...{ lost: 20, slow: 20, deaths: 2, freezes: 2, failovers: 1, changes: 4 },
  },
  "the head's clock is set": {
    ...{ ...QUIET, shards: 3, rate: 40, seconds: 7, load: 1, coordinators: 2 },
    ...{ lost: 20, slow: 20, freezes: 2, steps: 'head' },
  },
  'any clock is set': {
    ...{ ...QUIET, shards: 3, rate: 40, seconds: 7, load: 1, coordinators: 2 },
    ...{ lost: 20, slow: 20, freezes: 2, losses: 2, steps: 'all' },
  },
}

/** The slots under each rate that was set, from when on no lease of an earlier one was in force nor slots granted by it. */
function sinceChanges({ wholes, departedUs, plot }: Story): [rate: string, slotsUs: number[]][] {
  const overUs = LEASE_US + 1000 * (plot.horizonMs ?? 50)
  return wholes.slice(1).map(({ atUs, whole }, i) => {
    const endsUs = wholes[i + 2]?.atUs ?? Number.POSITIVE_INFINITY
    return [`${whole.perSecond}/s`, departedUs.filter((slotUs) => slotUs > atUs + overUs && slotUs < endsUs)]
  })
}

async function play(plot: Plot): Promise<Story> {
  const story = new Story(`${redis.prefix}:${plot.seed}:${Math.random().toString(36).slice(2)}:`, scripts, plot)
  await story.run()
  return story
}

test.each(someOf(Object.entries(PLOTS)))(
  '%s: what the leases allow and what departs is never above the whole',
  async (name, plot) => {
    for (let i = 0; i < STORIES; i++) {
      const seed = SEED + i
      const story = await play({ ...plot, seed })
      const which = `SHARDING_SEED=${seed} SHARDING_STORIES=1, ${name}`
      expect(story.together.length, which).toBeGreaterThan(10)
      for (const { atUs, perSecond, capacity, concurrency } of story.together) {
        expect(perSecond, which).toBeLessThanOrEqual(story.mostOf('perSecond', atUs, LEASE_US))
        expect(capacity, which).toBeLessThanOrEqual(story.mostOf('capacity', atUs, SETTLED_US))
        expect(concurrency, which).toBeLessThanOrEqual(story.mostOf('concurrency', atUs, SETTLED_US))
      }
      expect(
        story.fleets.map(({ ended, jobs }) => jobs.length - ended),
        which,
      ).toEqual(story.fleets.map(() => 0))
      // A clock that is set moves slots in the time of the world.
      if (plot.steps === 'all') continue
      const worst = worstWindow(story.departedUs, { rate: `${plot.rate}/s`, burst: story.burst })
      expect(worst?.excessUs, which).toBeLessThanOrEqual(TOLERANCE_US)
      for (const [rate, slotsUs] of sinceChanges(story)) {
        expect(worstWindow(slotsUs, { rate, burst: story.burst })?.excessUs ?? 0, which).toBeLessThanOrEqual(
          TOLERANCE_US,
        )
      }
    }
  },
  120_000 * STORIES,
)
