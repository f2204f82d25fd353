import { readdirSync } from 'node:fs'
import type { Redis } from 'ioredis'
import type { Bench, Figure, Row } from './harness/figure.ts'
import { addJobs, makeQueue, removeQueue } from './harness/queues.ts'
import { type ScriptNames, SlowCommands, scriptsOn } from './harness/scripts.ts'
import { median } from './harness/statistics.ts'
import { RedisWork } from './redis-work.ts'
import { DEPTHS, type Depth, deepQueue } from './scale.ts'
import {
  adds,
  closeScene,
  drain,
  dropping,
  explanation,
  failures,
  limiters,
  openShaped,
  openStock,
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

/** The slowest calls of a script with an input, one of each round. */
interface Found {
  readonly what: string
  readonly us: readonly number[]
}

/** What each command costs with each input that was tried. */
class Slowest {
  readonly #work: RedisWork
  readonly #names: ScriptNames = new Map()
  readonly #found = new Map<string, Found[]>()

  constructor(work: RedisWork) {
    this.#work = work
  }

  /** @returns the slowest call of each command, in each round */
  async of(label: string, input: WorstInput, client?: Redis): Promise<ReadonlyMap<string, readonly number[]>> {
    const slowest = new Map<string, number[]>()
    for (let round = 0; round <= ROUNDS; round++) {
      await input.prepare?.(round)
      const calls = await this.#work.during(() => input.run(round))
      await input.clear?.()
      if (round === 0) continue
      for (const [digest, name] of client ? scriptsOn(client) : []) this.#names.set(digest, name)
      for (const digest of new Set(calls.map((call) => call.name))) {
        const name = this.#names.get(digest) ?? (isDigest(digest) ? 'view' : digest)
        const us = Math.max(...calls.filter((call) => call.name === digest).map((call) => call.us))
        slowest.set(name, [...(slowest.get(name) ?? []), us])
      }
    }
    for (const [name, us] of slowest)
      this.#found.set(name, [...(this.#found.get(name) ?? []), { what: `${input.what}; ${label}`, us }])
    return slowest
  }

  /** The worst input of a script. */
  worstOf(name: string): Found | undefined {
    return this.#found.get(name)?.toSorted((one, other) => median(other.us) - median(one.us))[0]
  }

  /**
   * The worst input of each script of ours, and those that no input reached.
   * @param stock what BullMQ's own scripts cost
   */
  rows(stock: Slowest): Row[] {
    const missing = OURS.filter((name) => !this.#found.has(name))
    const rows = OURS.filter((name) => this.#found.has(name)).map((name) => {
      const { what, us } = this.worstOf(name) as Found
      const beside = stock.worstOf(STOCK[name] ?? name)
      const ms = median(us) / 1000
      const row: Row = {
        setup: name,
        asked: `<= ${ASKED_MS} ms`,
        reached: `${ms.toFixed(2)} ms, at most ${(Math.max(...us) / 1000).toFixed(2)} (${what})`,
        ok: ms <= ASKED_MS,
        beside: beside ? `${(median(beside.us) / 1000).toFixed(2)} ms (${beside.what})` : '',
        values: { us, beside, all: this.#found.get(name) },
      }
      return { row, ms }
    })
    const called = { asked: 'none', reached: missing.join(', ') || 'none', ok: missing.length === 0 }
    return [
      ...rows.toSorted((one, other) => other.ms - one.ms).map(({ row }) => row),
      { setup: 'scripts that were not called', ...called, values: { missing } },
    ]
  }
}

function explainedRow(label: string, calls: ReadonlyMap<string, readonly number[]>): Row {
  const found = [...calls].map(([name, us]) => ({ name, us: median(us) })).sort((one, other) => other.us - one.us)
  const { name, us } = found[0] ?? { name: 'none', us: 0 }
  return {
    setup: `explain: the slowest command, ${label}`,
    asked: `<= ${ASKED_MS} ms`,
    reached: `${(us / 1000).toFixed(2)} ms (${name})`,
    ok: us <= 1000 * ASKED_MS,
    values: { found },
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

/** All inputs on a queue in which very many jobs wait. */
async function inDepth(bench: Bench, work_: RedisWork, slowest: Slowest, depth: Depth, jobs: number): Promise<Row[]> {
  await bench.client.flushall('ASYNC')
  const { queue } = await deepQueue(bench, depth, jobs, await SlowCommands.start(bench.client))
  const scene = await openShaped(bench.client, { near: queue, jobs, opts: depth.opts }, work_)
  const label = `${jobs} in ${depth.what}`
  const inputs = [
    ...adds(scene),
    ...(depth.what === 'priorities' ? [] : dropping(scene)),
    ...views(scene),
    ...work(scene, 'without a rate', { rate: null as never }),
    ...work(scene, 'with a rate', WITH_RATE),
    ...work(scene, 'with limits', WITH_LIMITS),
    // On a queue of their own.
    ...(depth === DEPTHS[0] ? failures(scene) : []),
  ]
  for (const input of inputs) await slowest.of(label, refilled(scene, input), scene.client)
  const rows = [explainedRow(label, await slowest.of(label, explanation(scene)))]
  await queue.setShape(AGEING, BY)
  for (const input of [...adds(scene), ...work(scene, 'with ageing', { ...WITH_LIMITS, ...AGEING })])
    await slowest.of(`${label} and age`, refilled(scene, input))
  await queue.setShape(AGEING, BY)
  rows.push(explainedRow(`${label} and age, with limits`, await slowest.of(label, explanation(scene))))
  await queue.clearShape()
  await slowest.of(label, drain(scene))
  await closeScene(scene)
  await removeQueue(queue)
  return rows
}

/** BullMQ's own scripts, on a queue of its own in which as many jobs wait. */
async function besides(bench: Bench, work: RedisWork, stock: Slowest, depth: Depth, jobs: number): Promise<void> {
  const near = await makeQueue(bench, 'bullmq', 'stock')
  await addJobs(near, jobs, depth.opts)
  const scene = openStock({ near, jobs, opts: depth.opts }, work)
  const label = `${jobs} in ${depth.what}`
  for (const input of stockInputs(scene)) await stock.of(label, refilled(scene, input), scene.client)
  await closeScene(scene)
  await removeQueue(near)
}

async function run(bench: Bench): Promise<Row[]> {
  const jobs = bench.quick ? 10_000 : 1_000_000
  const work = await RedisWork.start(bench.redis)
  const [slowest, stock] = [new Slowest(work), new Slowest(work)]
  const redis = work.client()
  const rows: Row[] = []
  await spareMemory(bench.client)
  try {
    for (const depth of DEPTHS.filter(({ what }) => what !== 'delays')) {
      rows.push(...(await inDepth(bench, work, slowest, depth, jobs)))
      if (!('groups' in depth.shape)) await besides(bench, work, stock, depth, jobs)
    }
    await bench.client.flushall('ASYNC')
    for (const input of [...limiters(redis), ...otherPrograms(redis)]) await slowest.of('other programs', input, redis)
  } finally {
    redis.disconnect()
    work.stop()
  }
  return [...slowest.rows(stock), ...rows]
}

export const scripts: Figure = {
  name: 'scale-scripts',
  title:
    'Every script with its worst input, one call at a time: how long Redis was busy, the slowest of each round, median of rounds',
  mostMinutes: 60,
  run,
}
