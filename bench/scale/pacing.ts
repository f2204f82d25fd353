import { setTimeout as sleep } from 'node:timers/promises'
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

export interface Paced {
  readonly rateKept: number
  readonly p99Ms: number
  readonly excess: number
  readonly starts: readonly Start[]
  /** That the workers opened, and the bench for its own clock: one for each process. */
  readonly connections: number
}

const WARM_UP_MS = 2000

/** The rate and the lateness of workers on this queue, in which enough waits, while `during` is done. */
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
  await during()
  const reports = await Promise.all(team.map((process) => process.call('takeStarts', queue.name)))
  await Promise.all(team.map((process) => process.call('close', queue.name)))
  const starts = reports.flatMap((report) => report.starts).sort((a, b) => a.startedUs - b.startedUs)
  return { ...analysed(starts, perSecond), starts, connections }
}

/** Without the first seconds, until each worker has had its turn. */
export function analysed(starts: readonly Start[], perSecond: number): Omit<Paced, 'starts' | 'connections'> {
  const fromUs = (starts[0]?.startedUs ?? 0) + WARM_UP_MS * 1000
  const steady = starts.filter(({ startedUs }) => startedUs >= fromUs)
  const { rateKept } = analyseStarts(
    steady.map(({ startedUs }) => startedUs),
    1e6 / perSecond,
  )
  const { latenessUs, excessOfSlots } = analyseSlots(steady, 1e6 / perSecond)
  return { rateKept, p99Ms: latenessUs.p99 / 1000, excess: excessOfSlots }
}

export function describePaced({ rateKept, p99Ms, excess }: Omit<Paced, 'starts' | 'connections'>): string {
  return `${rateKept.toFixed(4)} of the rate, p99 ${p99Ms.toFixed(1)} ms late, above by ${Math.max(0, excess)}`
}
