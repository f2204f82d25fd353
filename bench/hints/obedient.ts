import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { type Shape, ShapedQueue } from 'sluice'
import { type Bench, connectionTo, withClient } from '../figure.ts'
import type { Methods } from '../fleet/protocol.ts'
import { RedisOffset } from '../fleet/redis-offset.ts'
import type { Remote } from '../fleet/remote.ts'
import { removeQueue } from '../queues.ts'

const PROGRAM = new URL('../fleet/process.ts', import.meta.url)
const READ_EVERY_MS = 250

/** A full queue, its workers, and the events during the run. */
export interface Scenario {
  readonly name: string
  readonly shape: Shape & { readonly capacity: number }
  readonly processes: number
  readonly concurrency: number
  readonly jobMs: number
  /** The mean ms between two departures. */
  readonly intervalMs: number
  /** Pauses of the meter: their duration and interval, ms. */
  readonly pauses?: { readonly forMs: number; readonly everyMs: number }
}

/** A hint that a producer received, on Redis's clock, ms. */
export interface Told {
  readonly atMs: number
  readonly retryAfterMs: number
}

export interface Obeyed {
  /** When each job was taken by a worker, ms, which freed a place. */
  readonly takenMs: readonly number[]
  readonly told: readonly Told[]
  readonly acceptedMs: readonly number[]
  /** Round trips of the refused calls, ms. */
  readonly roundTripMs: readonly number[]
}

/** Reads BullMQ's event for each job that a worker takes; its time is when the job's place became free. */
class Taken {
  readonly times: number[] = []
  readonly #client: Redis
  readonly #stream: string
  #last = '0'

  constructor(client: Redis, queue: ShapedQueue) {
    this.#client = client
    this.#stream = queue.toKey('events')
  }

  async read(): Promise<void> {
    const [stream] = (await this.#client.xread('STREAMS', this.#stream, this.#last)) ?? []
    for (const [id, fields] of stream?.[1] ?? []) {
      this.#last = id
      if (fields[1] === 'active') this.times.push(Number.parseInt(id, 10))
    }
  }
}

async function until(stop: AbortSignal, everyMs: number, act: () => Promise<unknown>): Promise<void> {
  while (!stop.aborted) {
    await act()
    await sleep(everyMs, undefined, { signal: stop }).catch(() => {})
  }
}

let queues = 0

/**
 * Runs one producer that adds jobs as fast as it can and, when refused, retries exactly at the time in the hint: from
 * before the workers start, in new processes, to `seconds` after the first job was taken.
 */
export async function obey(bench: Bench, scenario: Scenario, seconds: number): Promise<Obeyed> {
  queues += 1
  const connection = connectionTo(bench.redis)
  const queue = new ShapedQueue(`hints-${queues}`, { connection, shape: scenario.shape })
  const team = Array.from({ length: scenario.processes }, () => bench.fleet.start<Methods>(PROGRAM))
  try {
    return await withClient(bench.redis, async (client) => {
      await queue.waitUntilReady()
      while ((await queue.offer('job', {})).accepted);
      const taken = new Taken(client, queue)
      await open(team, scenario, queue.name, bench)
      while (taken.times.length === 0) await taken.read()
      return produce(client, queue, taken, scenario, seconds)
    })
  } finally {
    await Promise.all(team.map((process) => process.call('close', queue.name).finally(() => process.stop())))
    await removeQueue(queue)
  }
}

/** Starts the workers concurrently. */
async function open(team: readonly Remote<Methods>[], scenario: Scenario, queue: string, bench: Bench): Promise<void> {
  const { concurrency, jobMs } = scenario
  const spec = { system: 'sluice', queue, redis: bench.redis, workers: 1, concurrency, jobMs } as const
  await Promise.all(team.map((process) => process.call('open', spec)))
}

async function produce(
  client: Redis,
  queue: ShapedQueue,
  taken: Taken,
  { pauses }: Scenario,
  seconds: number,
): Promise<Obeyed> {
  const offset = new RedisOffset(client)
  await offset.sample()
  const done = new AbortController()
  const beside = [until(done.signal, READ_EVERY_MS, () => taken.read())]
  if (pauses) {
    beside.push(
      until(done.signal, pauses.everyMs, () => queue.pauseUntil(Date.now() + pauses.forMs, { reason: 'bench' })),
    )
  }
  const refused: { fromMs: number; toMs: number; retryAfterMs: number }[] = []
  const accepted: number[] = []
  const endMs = performance.now() + seconds * 1000
  while (performance.now() < endMs) {
    const fromMs = performance.now()
    const offer = await queue.offer('job', {})
    if (offer.accepted) accepted.push(fromMs)
    else {
      refused.push({ fromMs, toMs: performance.now(), retryAfterMs: offer.retryAfterMs })
      await sleep(offer.retryAfterMs)
    }
  }
  done.abort()
  await Promise.all(beside)
  await taken.read()
  await offset.sample()
  const redisMs = (atMs: number) => offset.toRedisUs(atMs) / 1000
  return {
    takenMs: taken.times,
    told: refused.map(({ fromMs, toMs, retryAfterMs }) => ({ atMs: redisMs((fromMs + toMs) / 2), retryAfterMs })),
    acceptedMs: accepted.map(redisMs),
    roundTripMs: refused.map(({ fromMs, toMs }) => toMs - fromMs),
  }
}
