import { readdirSync } from 'node:fs'
import { Redis } from 'ioredis'
import { type Bench, connectionTo, type Figure, type Row } from '../figure.ts'
import { RedisWork } from '../measure/redis-work.ts'
import { SlowCommands } from '../measure/slow-commands.ts'
import { median } from '../measure/statistics.ts'
import { removeQueue } from '../queues.ts'
import { DEPTHS, type Depth, deepQueue, jobsOf as jobsInFull, refill } from '../scale/deep-queue.ts'
import { closeStock, openStock, type StockScene, stockInputs } from '../scale/stock-inputs.ts'
import {
  adds,
  closeScene,
  type DeepScene,
  dropping,
  explanation,
  failures,
  openScene,
  views,
  type WorstInput,
  workers,
} from '../scale/worst-inputs.ts'
import { limiters, otherPrograms } from '../scale/worst-limits.ts'

/** After one that is not measured: it loads the scripts. The slowest call of one round is often that of a busy moment. */
const ROUNDS = 3
const QUICK_JOBS = 10_000
const ASKED_MS = 5
const OPEN = '1000000/s'
const WITH_RATE = { rate: OPEN, burst: 1_000_000 }
const WITH_LIMITS = {
  ...WITH_RATE,
  audit: 1_000_000,
  limits: [
    { name: 'tokens', algorithm: 'token-bucket', rate: OPEN, burst: 1_000_000 },
    { name: 'day', algorithm: 'fixed-window', rate: '100000000/day', align: 'day', timeZone: 'Europe/Berlin' },
    { name: 'log', algorithm: 'sliding-window-log', rate: '1000000/hour' },
  ],
} as const

/** Stored and deleted first, so that no script waits for new memory: bench.env has Redis keep it. */
const SPARE_MIB = 1024

/** BullMQ's scripts, by the names of ours that do the same and have other names. */
const STOCK: Readonly<Record<string, string>> = {
  add: 'addStandardJob',
  'drain-part': 'drain',
  exchange: 'moveToFinished',
  'remove-waiting': 'removeJob',
}

/** How many jobs wait. */
const jobsOf = (bench: Bench): number => (bench.quick ? QUICK_JOBS : jobsInFull(bench))

/** The slowest calls of a script with an input, one of each round. */
interface Found {
  readonly what: string
  readonly us: readonly number[]
}

/** The files of lua/verbs. */
const OURS = readdirSync(new URL('../../lua/verbs/', import.meta.url)).flatMap((file) =>
  file.endsWith('.lua') ? [file.slice(0, -4)] : [],
)

/** `sluice:1.0.0:6.7.0:add-flow-2`, or BullMQ's `moveToActive:6.7.0`. */
function nameOf(command: string): string {
  const parts = command.split(':')
  return (command.startsWith('sluice:') ? parts.at(-1) : parts[0])?.replace(/^(add-flow)-\d+$/, '$1') as string
}

/** A script that no client has defined is sent whole: only that of views is. */
const isDigest = (name: string): boolean => /^[\da-f]{40}$/.test(name)

/** What each command costs with each input that was tried. */
class Slowest {
  readonly #work: RedisWork
  readonly #names = new Map<string, string>()
  readonly #found = new Map<string, Found[]>()

  constructor(work: RedisWork) {
    this.#work = work
  }

  /** Learns the scripts that are defined on a client. */
  learn(client: Redis): void {
    const scripts = Object.entries(client.scriptsSet as Readonly<Record<string, { sha: string }>>)
    for (const [command, { sha }] of scripts) {
      const name = nameOf(command)
      // Of a function, the client has no text.
      this.#names.set(sha, name).set(name.replaceAll('-', '_'), name)
    }
  }

  /** @returns the slowest call of each command, in each round */
  async of(
    label: string,
    input: WorstInput,
    clients: readonly Redis[] = [],
  ): Promise<ReadonlyMap<string, readonly number[]>> {
    const slowest = new Map<string, number[]>()
    for (let round = 0; round <= ROUNDS; round++) {
      await input.prepare?.(round)
      const calls = await this.#work.during(() => input.run(round))
      await input.clear?.()
      if (round === 0) continue
      for (const client of clients) this.learn(client)
      for (const digest of new Set(calls.map((call) => call.name))) {
        const name = this.#names.get(digest) ?? (isDigest(digest) ? 'read-many' : digest)
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
   * The worst input of each script of ours.
   * @param stock what BullMQ's own scripts cost
   */
  rows(stock: Slowest): Row[] {
    const found = [...this.#found].filter(([name]) => OURS.includes(name))
    const rows = found.map(([name]) => {
      const worst = this.worstOf(name) as Found
      return { name, ...worst, ms: median(worst.us) / 1000, beside: stock.worstOf(STOCK[name] ?? name) }
    })
    return rows
      .toSorted((one, other) => other.ms - one.ms)
      .map(({ name, what, us, ms, beside }) => ({
        setup: name,
        asked: `<= ${ASKED_MS} ms`,
        reached: `${ms.toFixed(2)} ms, at most ${(Math.max(...us) / 1000).toFixed(2)} (${what})`,
        ok: ms <= ASKED_MS,
        beside: beside ? `${(median(beside.us) / 1000).toFixed(2)} ms (${beside.what})` : '',
        values: { us, beside, all: this.#found.get(name) },
      }))
  }

  /** A script that no input reached. */
  missing(): Row {
    const known = new Set(this.#found.keys())
    const missing = OURS.filter((file) => !known.has(file))
    return {
      setup: 'scripts that were not called',
      asked: 'none',
      reached: missing.join(', ') || 'none',
      ok: missing.length === 0,
      values: { missing },
    }
  }
}

function explainedRow(label: string, calls: ReadonlyMap<string, readonly number[]>): Row {
  const found = [...calls].map(([name, us]) => ({ name, us: median(us) })).sort((one, other) => other.us - one.us)
  const [slowest] = found
  return {
    setup: `explain: the slowest command, ${label}`,
    asked: `<= ${ASKED_MS} ms`,
    reached: `${((slowest?.us ?? 0) / 1000).toFixed(2)} ms (${slowest?.name})`,
    ok: (slowest?.us ?? 0) <= 1000 * ASKED_MS,
    values: { found },
  }
}

type Waiting = Pick<DeepScene, 'near' | 'jobs' | 'opts'> | StockScene

/** The same input, each time on a queue in which as many jobs wait: workers take thousands. */
function refilled({ near, jobs, opts }: Waiting, input: WorstInput): WorstInput {
  return {
    ...input,
    prepare: async (round) => {
      await refill(near, jobs, opts)
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
async function inDepth(bench: Bench, work: RedisWork, slowest: Slowest, depth: Depth): Promise<Row[]> {
  await bench.client.flushall('ASYNC')
  const jobs = jobsOf(bench)
  const { queue } = await deepQueue(bench, depth, jobs, await SlowCommands.start(bench.client))
  const scene = await openScene(bench.client, queue, { measured: work.address, jobs, opts: depth.opts })
  const label = `${jobs} in ${depth.what}`
  const inputs = [
    ...adds(scene),
    ...(depth.what === 'priorities' ? [] : dropping(scene)),
    ...views(scene),
    ...workers(scene, 'without a rate', { rate: null as never }),
    ...workers(scene, 'with a rate', WITH_RATE),
    ...workers(scene, 'with limits', WITH_LIMITS),
    // On a queue of their own.
    ...(depth === DEPTHS[0] ? failures(scene) : []),
  ]
  for (const input of inputs) await slowest.of(label, refilled(scene, input), [scene.client])
  const rows = [explainedRow(label, await slowest.of(label, explanation(scene)))]
  await queue.setShape({ priorityAgeingMs: 60_000, limits: WITH_LIMITS.limits }, { by: 'bench', reason: 'scale' })
  for (const input of [...adds(scene), ...workers(scene, 'with ageing', { ...WITH_LIMITS, priorityAgeingMs: 60_000 })])
    await slowest.of(`${label} and age`, refilled(scene, input))
  await queue.setShape({ priorityAgeingMs: 60_000, limits: WITH_LIMITS.limits }, { by: 'bench', reason: 'scale' })
  rows.push(explainedRow(`${label} and age, with limits`, await slowest.of(label, explanation(scene))))
  await queue.clearShape()
  await slowest.of(label, { what: 'drain', run: (round) => (round === 1 ? scene.far.drain(true) : Promise.resolve()) })
  await closeScene(scene)
  await removeQueue(queue)
  return rows
}

/** BullMQ's own scripts, on a queue of its own in which as many jobs wait. */
async function besides(bench: Bench, work: RedisWork, stock: Slowest, depth: Depth): Promise<void> {
  const scene = await openStock(bench, depth, jobsOf(bench), work.address)
  const label = `${scene.jobs} in ${depth.what}`
  for (const input of stockInputs(scene)) await stock.of(label, refilled(scene, input), [scene.client])
  await closeStock(scene)
}

export const scaleScripts: Figure = {
  name: 'scale-scripts',
  title:
    'Every script with its worst input, one call at a time: how long Redis was busy, the slowest of each round, median of rounds',
  mostMinutes: 60,
  run: async (bench) => {
    const work = await RedisWork.start(bench.redis)
    const [slowest, stock] = [new Slowest(work), new Slowest(work)]
    const redis = new Redis(connectionTo(work.address))
    const rows: Row[] = []
    await spareMemory(bench.client)
    try {
      for (const depth of DEPTHS.filter(({ what }) => what !== 'delays')) {
        rows.push(...(await inDepth(bench, work, slowest, depth)))
        if (!('groups' in depth.shape)) await besides(bench, work, stock, depth)
      }
      await bench.client.flushall('ASYNC')
      for (const input of [...limiters(redis), ...otherPrograms(redis)])
        await slowest.of('other programs', input, [redis])
    } finally {
      redis.disconnect()
      work.stop()
    }
    return [...slowest.rows(stock), slowest.missing(), ...rows]
  },
}
