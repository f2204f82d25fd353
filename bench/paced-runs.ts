import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench } from './figure.ts'
import type { Start, System } from './fleet/protocol.ts'
import { addJobs, makeQueue, removeQueue } from './queues.ts'

/** Cut from the start of every run: workers wake one by one until each has had its turn. */
const WARM_UP_MS = 500

/** A rate, and the workers that have to reach it. */
export interface Setup {
  readonly perSecond: number
  readonly processes: number
  readonly concurrency: number
  readonly jobMs: number
}

/** What paces the starts: Sluice, or BullMQ's limiter with one job per interval or with one window per second. */
export type Pacing = 'sluice' | 'spaced' | 'windowed'

export interface PacedRun {
  /** All starts in order, from the first. */
  readonly starts: readonly Start[]
  /** Those after the warm-up. */
  readonly steady: readonly Start[]
  readonly wentBack: number
  readonly clockErrorUs: number
}

export const SETUPS = {
  'four at 50/s': { perSecond: 50, processes: 4, concurrency: 10, jobMs: 500 },
  'one at 50/s': { perSecond: 50, processes: 1, concurrency: 50, jobMs: 500 },
  '500/s': { perSecond: 500, processes: 4, concurrency: 20, jobMs: 5 },
  '2000/s': { perSecond: 2000, processes: 2, concurrency: 50, jobMs: 2 },
} as const satisfies Record<string, Setup>

export function describeSetup({ perSecond, processes, concurrency, jobMs }: Setup): string {
  return `${perSecond}/s, ${processes} × ${concurrency}, ${jobMs} ms jobs`
}

export const intervalUs = ({ perSecond }: Setup): number => 1e6 / perSecond

/** A run under a backlog. Several figures use the same run, so each is made once. */
export function pacedRun(bench: Bench, setup: Setup, pacing: Pacing): Promise<PacedRun> {
  const key = `${pacing}: ${describeSetup(setup)}`
  let run = bench.pacedRuns.get(key)
  if (!run) {
    run = measure(bench, setup, pacing)
    bench.pacedRuns.set(key, run)
  }
  return run
}

function secondsOf(setup: Setup, quick: boolean): number {
  if (setup.perSecond <= 50) return quick ? 2.1 : 12
  return quick ? 1 : 5
}

/** One job per interval, or the nearest to it in whole milliseconds. */
export function spacedLimiter(perSecond: number): { max: number; duration: number } {
  const duration = Math.max(1, 1000 / perSecond)
  return { max: (perSecond * duration) / 1000, duration }
}

async function measure(bench: Bench, setup: Setup, pacing: Pacing): Promise<PacedRun> {
  const { perSecond, processes, concurrency, jobMs } = setup
  const system: System = pacing === 'sluice' ? 'sluice' : 'bullmq'
  const limiter = pacing === 'windowed' ? { max: perSecond, duration: 1000 } : spacedLimiter(perSecond)
  const measuredMs = secondsOf(setup, bench.quick) * 1000 + WARM_UP_MS
  const queue = await makeQueue(bench, system, 'rate', { rate: `${perSecond}/s` })
  await queue.pause()
  // Twice the expected number: a windowed limiter may start one window more.
  await addJobs(queue, Math.ceil((perSecond * measuredMs) / 1000) * 2)
  const team = bench.fleet.team(processes)
  const group = { system, queue: queue.name, redis: bench.redis, workers: 1, concurrency, jobMs }
  await Promise.all(team.map((process) => process.call('open', system === 'sluice' ? group : { ...group, limiter })))
  await queue.resume()
  await sleep(measuredMs + 100)
  const reports = await Promise.all(team.map((process) => process.call('takeStarts', queue.name)))
  await Promise.all(team.map((process) => process.call('close', queue.name)))
  await removeQueue(queue)
  const starts = reports.flatMap((report) => report.starts).sort((a, b) => a.startedUs - b.startedUs)
  const firstUs = starts[0]?.startedUs ?? 0
  const within = starts.filter(({ startedUs }) => startedUs - firstUs <= measuredMs * 1000)
  return {
    starts: within,
    steady: within.filter(({ startedUs }) => startedUs - firstUs >= WARM_UP_MS * 1000),
    wentBack: reports.reduce((sum, { wentBack }) => sum + wentBack, 0),
    clockErrorUs: Math.max(...reports.map(({ clockErrorUs }) => clockErrorUs)),
  }
}
