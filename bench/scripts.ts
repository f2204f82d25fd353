import { readdirSync } from 'node:fs'
import { Queue } from 'bullmq'
import type { Redis } from 'ioredis'
import { ShapedQueue } from 'sluice'
import type { Bench, Figure, Row } from './harness/figure.ts'
import { addJobs, makeQueue, removeQueue } from './harness/queues.ts'
import { RedisWork } from './harness/redis-work.ts'
import { type ScriptNames, scriptsOn } from './harness/scripts.ts'
import { median } from './harness/statistics.ts'
import { DEPTHS, type Depth, deepQueue } from './scale.ts'
import {
  adds,
  drain,
  dropping,
  explanation,
  failures,
  limiters,
  otherPrograms,
  type Scene,
  stockInputs,
  views,
  type WorstInput,
  work,
} from './script-inputs.ts'

/** After one that is not measured: it loads the scripts. The slowest call of one round is often that of a busy moment. */
const ROUNDS = 3
const ASKED_MS = 5
const BY = { by: 'bench', reason: 'scale' }
const OPEN = '1000000/s'
const WITH_RATE = { rate: OPEN, burst: 1_000_000 }
const LIMITS = [
  { name: 'tokens', algorithm: 'token-bucket', rate: OPEN, burst: 1_000_000 },
  { name: 'day', algorithm: 'fixed-window', rate: '100000000/day', align: 'day', timeZone: 'Europe/Berlin' },
  { name: 'log', algorithm: 'sliding-window-log', rate: '1000000/hour' },
] as const
const WITH_LIMITS = { ...WITH_RATE, audit: 1_000_000, limits: LIMITS }
const AGEING = { priorityAgeingMs: 60_000, limits: LIMITS }

/** Stored and deleted first, so that no script waits for new memory: bench.env has Redis keep it. */
const SPARE_MIB = 1024

/** BullMQ's scripts, by the names of ours that do the same and have other names. */
const STOCK: Readonly<Record<string, string>> = {
  add: 'addStandardJob',
  'drain-part': 'drain',
  exchange: 'moveToFinished',
  'cancel-job': 'removeJob',
}

const OURS = readdirSync(new URL('../lua/verbs/', import.meta.url)).flatMap((file) =>
  file.endsWith('.lua') ? [file.slice(0, -4)] : [],
)

/** A script that no client has defined is sent whole: only that of views is. */
const isDigest = (name: string): boolean => /^[\da-f]{40}$/.test(name)

/** The slowest calls of a command with an input, one of each round. */
interface Found {
  readonly what: string
  readonly us: readonly number[]
}

const worst = (all: readonly Found[]) => all.toSorted((one, other) => median(other.us) - median(one.us))[0]

/** What each command costs with each input that was tried. */
class Slowest {
  readonly #work: RedisWork
  readonly #names: ScriptNames = new Map()
  readonly #found = new Map<string, Found[]>()

  constructor(work: RedisWork) {
    this.#work = work
  }

  async try(label: string, input: WorstInput, client: Redis): Promise<void> {
    const slowest = new Map<string, number[]>()
    for (let round = 0; round <= ROUNDS; round++) {
      await input.prepare?.(round)
      const calls = await this.#work.during(() => input.run(round))
      await input.clear?.()
      if (round === 0) continue
      for (const [digest, name] of scriptsOn(client)) this.#names.set(digest, name)
      for (const digest of new Set(calls.map((call) => call.name))) {
        const name = this.#names.get(digest) ?? (isDigest(digest) ? 'view' : digest)
        const us = Math.max(...calls.filter((call) => call.name === digest).map((call) => call.us))
        slowest.set(name, [...(slowest.get(name) ?? []), us])
      }
    }
    for (const [name, us] of slowest)
      this.#found.set(name, [...(this.#found.get(name) ?? []), { what: `${input.what}; ${label}`, us }])
  }

  /** The worst input of each script of ours, the slowest of all other commands, and scripts that no input reached. */
  rows(stock: Slowest): Row[] {
    const row = (setup: string, all: readonly Found[], beside?: Found): Row => {
      const { what, us } = worst(all) ?? { what: 'none', us: [0] }
      const ms = median(us) / 1000
      return {
        setup,
        asked: `<= ${ASKED_MS} ms`,
        reached: `${ms.toFixed(2)} ms, at most ${(Math.max(...us) / 1000).toFixed(2)} (${what})`,
        ok: ms <= ASKED_MS,
        beside: beside ? `${(median(beside.us) / 1000).toFixed(2)} ms (${beside.what})` : '',
        values: { ms, us, beside, all },
      }
    }
    const called = OURS.flatMap((name) => {
      const all = this.#found.get(name)
      return all ? [row(name, all, worst(stock.#found.get(STOCK[name] ?? name) ?? []))] : []
    })
    const others = [...this.#found].filter(([name]) => !OURS.includes(name))
    const named = others.flatMap(([name, all]) => all.map(({ what, us }) => ({ what: `${name}: ${what}`, us })))
    const missing = OURS.filter((name) => !this.#found.has(name))
    const msOf = ({ values }: Row) => (values as { ms: number }).ms
    return [
      ...called.toSorted((one, other) => msOf(other) - msOf(one)),
      row('other commands, the slowest', named),
      {
        ...{ setup: 'scripts that were not called', asked: 'none', reached: missing.join(', ') || 'none' },
        ...{ ok: missing.length === 0, values: { missing } },
      },
    ]
  }
}

/** The same input, each time on a queue in which as many jobs wait: workers take thousands. */
function refilled({ near, jobs, opts }: Scene, input: WorstInput): WorstInput {
  return {
    ...input,
    prepare: async (round) => {
      const left = jobs - (await near.getJobCountByTypes('wait', 'prioritized'))
      if (left > 0) await addJobs(near, left, opts)
      await input.prepare?.(round)
    },
  }
}

async function spareMemory(client: Redis): Promise<void> {
  const mebibyte = Buffer.alloc(1024 * 1024, 'x')
  for (let i = 0; i < SPARE_MIB; i++) await client.set(`spare:${i}`, mebibyte)
  await client.flushall('ASYNC')
}

/** Tries inputs of the same queue, measured, and removes it. */
async function withScene<Q extends Queue>(
  work: RedisWork,
  waiting: Pick<Scene<Q>, 'near' | 'redis' | 'jobs' | 'opts'>,
  farOf: (name: string, connection: Redis) => Q,
  use: (scene: Scene<Q>) => Promise<void>,
): Promise<void> {
  const [client, workers] = [work.client(), work.client()]
  const far = farOf(waiting.near.name, client)
  await use({ ...waiting, far, client, workers })
  await far.close()
  client.disconnect()
  workers.disconnect()
  await removeQueue(waiting.near)
}

/** A job that as many leave before as after. */
async function middleOf({ near, jobs }: Scene): Promise<string> {
  const [found] = await near.getJobs(['wait', 'prioritized'], jobs / 2, jobs / 2)
  return found?.id as string
}

/** All inputs on a queue in which very many jobs wait. */
async function inDepth(slowest: Slowest, scene: Scene<ShapedQueue>, depth: Depth): Promise<void> {
  const { near, jobs, client } = scene
  const middle = await middleOf(scene)
  const label = `${jobs} in ${depth.what}`
  const inputs = [
    ...adds(scene),
    ...(depth.what === 'priorities' ? [] : dropping(scene)),
    ...views(scene, middle),
    explanation(scene, middle),
    ...work(scene, 'without a rate', { rate: null as never }),
    ...work(scene, 'with a rate', WITH_RATE),
    ...work(scene, 'with limits', WITH_LIMITS),
    // On a queue of their own.
    ...(depth === DEPTHS[0] ? failures(scene) : []),
  ]
  for (const input of inputs) await slowest.try(label, refilled(scene, input), client)
  await near.setShape(AGEING, BY)
  const ageing = [
    ...adds(scene),
    explanation(scene, middle),
    ...work(scene, 'with ageing', { ...WITH_LIMITS, ...AGEING }),
  ]
  for (const input of ageing) await slowest.try(`${label} and age`, refilled(scene, input), client)
  await near.clearShape()
  await slowest.try(label, drain(scene), client)
}

async function run(bench: Bench): Promise<Row[]> {
  const jobs = bench.quick ? 10_000 : 1_000_000
  const work = await RedisWork.start(bench.redis)
  const [slowest, stock] = [new Slowest(work), new Slowest(work)]
  const redis = work.client()
  await spareMemory(bench.client)
  try {
    for (const depth of DEPTHS) {
      const { opts } = depth
      const near = await deepQueue(bench, depth, jobs)
      // One command at a time takes long.
      const shaped = (name: string, connection: Redis) => new ShapedQueue(name, { connection, admitTimeoutMs: 600_000 })
      await withScene(work, { near, redis: bench.client, jobs, opts }, shaped, (scene) =>
        inDepth(slowest, scene, depth),
      )
      if ('groups' in depth.shape) continue
      const theirs = await makeQueue(bench, 'bullmq', 'stock')
      await addJobs(theirs, jobs, opts)
      const plain = (name: string, connection: Redis) => new Queue(name, { connection })
      await withScene(work, { near: theirs, redis: bench.client, jobs, opts }, plain, async (scene) => {
        for (const input of stockInputs(scene))
          await stock.try(`${jobs} in ${depth.what}`, refilled(scene, input), scene.client)
      })
    }
    await bench.client.flushall('ASYNC')
    for (const input of [...limiters(redis), ...otherPrograms(redis)]) await slowest.try('other programs', input, redis)
  } finally {
    redis.disconnect()
    work.stop()
  }
  return slowest.rows(stock)
}

export const scripts: Figure = {
  name: 'scale-scripts',
  title:
    'Every script with its worst input, one call at a time: how long Redis was busy, the slowest of each round, median of rounds',
  mostMinutes: 60,
  run,
}
