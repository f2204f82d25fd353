import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import type { ShapedQueue } from 'sluice'
import type { Bench } from '../figure.ts'
import type { RedisAddress, Start } from '../fleet/protocol.ts'
import { analyseSlots, analyseStarts } from '../measure/starts.ts'
import { connectionsTo } from './connections.ts'

/** Workers on a queue. */
export interface Work {
  readonly perSecond: number
  readonly processes: number
  /** In each process. */
  readonly workers: number
  readonly concurrency: number
  readonly jobMs: number
  /** Default: that of the bench. */
  readonly redis?: RedisAddress
}

export interface Pace {
  readonly rateKept: number
  readonly p99Ms: number
  readonly excess: number
}

export interface Paced extends Pace {
  /** All of them, also while the workers opened. */
  readonly starts: readonly Start[]
  /** That the workers opened, and the bench for its own clock: one for each process. */
  readonly connections: number
  /** Scripts that were called, and wake-ups that were published, for each start. */
  readonly callsPerStart: number
  readonly wakesPerStart: number
}

/** With 500 workers on two processors, jobs are up to 170 ms late for two seconds more. */
const WARM_UP_MS = 6000

/**
 * The rate and the lateness of workers on this queue, in which enough waits, while `during` is done. Hundreds of
 * workers take seconds to open: only starts after that are measured.
 */
export async function paced(
  bench: Bench,
  queue: ShapedQueue,
  { processes, perSecond, redis = bench.redis, ...work }: Work,
  during: () => Promise<unknown> = () => sleep(bench.quick ? 3000 : 15_000),
): Promise<Paced> {
  const team = bench.fleet.team(processes)
  const spec = { system: 'sluice', queue: queue.name, clock: bench.redis, redis, ...work } as const
  const before = await connectionsTo(bench.client)
  await Promise.all(team.map((process) => process.call('open', spec)))
  await sleep(WARM_UP_MS)
  const connections = (await connectionsTo(bench.client)) - before
  const [from, fromUs] = [await callsOf(bench.client), await redisUs(bench.client)]
  await during()
  const to = await callsOf(bench.client)
  const reports = await Promise.all(team.map((process) => process.call('takeStarts', queue.name)))
  await Promise.all(team.map((process) => process.call('close', queue.name)))
  const starts = reports.flatMap((report) => report.starts).sort((a, b) => a.startedUs - b.startedUs)
  const steady = starts.filter(({ startedUs }) => startedUs >= fromUs)
  return {
    ...paceOf(steady, perSecond),
    starts,
    connections,
    callsPerStart: (to.scripts - from.scripts) / steady.length,
    wakesPerStart: (to.wakes - from.wakes) / steady.length,
  }
}

export function paceOf(starts: readonly Start[], perSecond: number): Pace {
  const { rateKept } = analyseStarts(
    starts.map(({ startedUs }) => startedUs),
    1e6 / perSecond,
  )
  const { latenessUs, excessOfSlots } = analyseSlots(starts, 1e6 / perSecond)
  return { rateKept, p99Ms: latenessUs.p99 / 1000, excess: excessOfSlots }
}

export function describePace({ rateKept, p99Ms, excess }: Pace): string {
  return `${rateKept.toFixed(4)} of the rate, p99 ${p99Ms.toFixed(1)} ms late, above by ${Math.max(0, excess)}`
}

async function redisUs(client: Redis): Promise<number> {
  const [seconds, us] = await client.time()
  return Number(seconds) * 1e6 + Number(us)
}

async function callsOf(client: Redis): Promise<{ scripts: number; wakes: number }> {
  const info = await client.info('commandstats')
  const of = (command: string) => Number(new RegExp(`^cmdstat_${command}:calls=(\\d+)`, 'm').exec(info)?.[1] ?? 0)
  return { scripts: of('fcall'), wakes: of('publish') }
}
