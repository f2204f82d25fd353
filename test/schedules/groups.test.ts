import { expect, test } from 'vitest'
import { type Random, randomOf } from '../../packages/cli/src/simulate/random.ts'
import { encodeQueueLimits } from '../../src/limits/queue-limits.ts'
import { encodeRate, type RateSchedule } from '../../src/limits/schedule.ts'
import { ReferenceBucket } from '../../src/testing/index.ts'
import { replayText } from '../groups/model/replay.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()

const HISTORIES = caseCount(120, 'SCHEDULES_STORIES')
const STEPS = 120
/** A Monday, 07:50 UTC. */
const START_US = Date.parse('2026-11-30T07:50:00Z') * 1000
const GROUPS = ['a', 'b', 'c']

type Operation = readonly (string | number)[]

/** Groups whose rates follow the clock, each as a bucket of its own, which nothing else holds. */
class History {
  readonly operations: Operation[] = []
  /** What each operation has to reply; a departure: which jobs may leave, and with what slot. */
  readonly expected: (readonly string[])[] = []
  readonly defaults: { rate: RateSchedule; burst: number }
  readonly #random: Random
  readonly #buckets: Map<string, ReferenceBucket>
  readonly #waiting = new Map(GROUPS.map((group) => [group, [] as { id: string; cost: number }[]]))
  #nowUs = START_US
  #jobs = 0

  constructor(seed: number) {
    this.#random = randomOf(seed * 7907 + 5)
    this.defaults = { rate: this.#schedule(), burst: this.#pick([1, 1, 2, 5]) }
    this.#buckets = new Map(GROUPS.map((group) => [group, new ReferenceBucket(this.defaults, START_US)]))
    for (let i = 0; i < STEPS; i++) this.#step()
  }

  #pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.#random.uniform() * from.length)] as T
  }

  #schedule(): RateSchedule {
    const minute = () => this.#pick(['3/s', '20/min', '6/min', 0] as const)
    return {
      schedule: [
        { from: '07:52', to: '07:55', rate: minute() },
        { from: '07:55', to: '08:00', rate: minute() },
        { days: 'mon-fri', from: '08:00', to: '08:01', rate: minute() },
        { rate: this.#pick(['1/s', '2/s', '5/s']) },
      ],
      timeZone: 'UTC',
    }
  }

  #step(): void {
    if (this.#random.uniform() < 0.4) this.#add()
    this.#nowUs += Math.floor(this.#pick([0, 1, 900_000, 20_000_000, 40_000_000]) * this.#random.uniform())
    this.#depart()
  }

  #add(): void {
    const group = this.#pick(GROUPS)
    const cost = this.#pick([1, 1, 0.5, 3])
    this.#jobs += 1
    const id = `j${this.#jobs}`
    this.#waiting.get(group)?.push({ id, cost })
    this.operations.push(['add', this.#nowUs, id, JSON.stringify({ group: { id: group }, cost }), group, 0])
    this.expected.push([''])
  }

  /** All that may go do, in an order that is not known here, until the next slot of a group is told. */
  #depart(): void {
    const left: string[] = []
    const next: number[] = []
    for (const group of GROUPS) {
      const bucket = this.#buckets.get(group) as ReferenceBucket
      const waiting = this.#waiting.get(group) as { id: string; cost: number }[]
      bucket.advance(this.#nowUs - bucket.nowUs)
      while (waiting[0] && bucket.depart(waiting[0].cost) !== undefined)
        left.push((waiting.shift() as { id: string }).id)
      if (waiting[0]) next.push(bucket.nextSlotUs(waiting[0].cost))
    }
    const told = left.map((id) => `${id} ${this.#nowUs}`)
    for (let i = 0; i <= left.length; i++) this.operations.push(['depart', this.#nowUs, 0, 0])
    this.expected.push(...left.map(() => told), next.length > 0 ? [`none ${Math.min(...next)}`] : ['none ', 'none inf'])
  }
}

test.each(['their own rates', 'a limit by group'])(
  `${HISTORIES} histories of groups: %s follow the clock`,
  {
    timeout: 600_000,
  },
  async (kind) => {
    const sha = (await client.script('LOAD', replayText)) as string
    for (let seed = 1; seed <= HISTORIES; seed++) {
      const { operations, expected, defaults } = new History(seed)
      const [stored, limits] =
        kind === 'a limit by group'
          ? ['{}', encodeQueueLimits([{ name: 'quiet', by: 'group', ...defaults }])]
          : [JSON.stringify({ ...defaults, rate: encodeRate(defaults.rate) }), '']
      const key = `${redis.prefix}:h${seed}:meta:shape`
      const args = [stored, JSON.stringify(operations), limits, '', String(seed % 2)] as string[]
      const replies = (await client.evalsha(sha, 1, key, ...args)) as string[]
      const wrong = replies.findIndex((reply, i) => !expected[i]?.includes(reply))
      const story = operations.slice(Math.max(0, wrong - 4), wrong + 1)
      expect(wrong, `seed ${seed}, ${replies[wrong]} is none of ${expected[wrong]}:\n${story.join('\n')}`).toBe(-1)
      const keys = await client.keys(`${redis.prefix}:h${seed}:*`)
      if (keys.length > 0) await client.unlink(...keys)
    }
  },
)
