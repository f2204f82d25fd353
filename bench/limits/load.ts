import { performance } from 'node:perf_hooks'
import type { Redis } from 'ioredis'
import { redisCpuUs, scriptUsage } from '../measure/redis-usage.ts'
import { median } from '../measure/statistics.ts'
import type { Quota, Take } from './contenders.ts'

/** The loads under measurement: all requests pass, or almost none. */
export const LOADS = {
  allowed: { quota: { limit: 1_000_000, periodS: 60, burst: 1_000_000 }, least: 0.99, most: 1 },
  refused: { quota: { limit: 1, periodS: 60, burst: 1 }, least: 0, most: 0.05 },
} as const satisfies Record<string, { quota: Quota; least: number; most: number }>
export type Load = keyof typeof LOADS

export interface Cost {
  readonly perSecond: number
  /** CPU of this process, µs per decision. */
  readonly clientUs: number
  /** Inside the scripts, µs per decision. */
  readonly scriptUs: number
  /** CPU of the whole server, µs per decision. */
  readonly cpuUs: number
  readonly calls: number
}

const KEYS = Array.from({ length: 100 }, (_, i) => `user-${String(i).padStart(3, '0')}`)
/** Warm-up calls per key: scripts are loaded, limits defined, and limits of one unit used up. */
const WARM_UP = 3

async function askFor(take: Take, concurrency: number, ms: number): Promise<{ asked: number; passed: number }> {
  const untilMs = performance.now() + ms
  let asked = 0
  let passed = 0
  const caller = async () => {
    while (performance.now() < untilMs) {
      const key = KEYS[asked++ % KEYS.length] as string
      if (await take(key)) passed += 1
    }
  }
  await Promise.all(Array.from({ length: concurrency }, caller))
  return { asked, passed }
}

/** Measures one limiter on an otherwise idle, empty Redis. */
export async function measureLoad(
  redis: Redis,
  take: Take,
  load: Load,
  concurrency: number,
  ms: number,
): Promise<Cost> {
  await redis.flushdb()
  for (let i = 0; i < WARM_UP; i++) await Promise.all(KEYS.map(take))
  const [scriptsBefore, cpuBefore] = [await scriptUsage(redis), await redisCpuUs(redis)]
  const [startedMs, clientBefore] = [performance.now(), process.cpuUsage()]
  const { asked, passed } = await askFor(take, concurrency, ms)
  const elapsedMs = performance.now() - startedMs
  const { user, system } = process.cpuUsage(clientBefore)
  const [scripts, cpu] = [await scriptUsage(redis), await redisCpuUs(redis)]
  const { least, most } = LOADS[load]
  const share = passed / asked
  if (share < least || share > most) throw new Error(`${passed} of ${asked} passed where nearly all were ${load}`)
  return {
    perSecond: (asked / elapsedMs) * 1000,
    clientUs: (user + system) / asked,
    scriptUs: (scripts.us - scriptsBefore.us) / asked,
    cpuUs: (cpu - cpuBefore) / asked,
    calls: (scripts.calls - scriptsBefore.calls) / asked,
  }
}

export function medianCost(costs: readonly Cost[]): Cost {
  const of = (field: keyof Cost) => median(costs.map((cost) => cost[field]))
  const rest = { clientUs: of('clientUs'), scriptUs: of('scriptUs'), cpuUs: of('cpuUs'), calls: of('calls') }
  return { perSecond: of('perSecond'), ...rest }
}

/** Formats the median of costs as a cell of the table. */
export function describeCost(costs: readonly Cost[]): string {
  const { perSecond, clientUs, scriptUs, calls } = medianCost(costs)
  return `${perSecond.toFixed(0)}/s, client ${clientUs.toFixed(1)} µs, scripts ${scriptUs.toFixed(1)} µs, ${calls.toFixed(2)} calls`
}
