import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { mostWithin } from '../../workers/demo/windows.ts'
import { sum } from '../measure/statistics.ts'
import type { Take } from './contenders.ts'

export const PERIOD_MS = 1000
/** Answers arrive some ms after the decision: windows are shortened by this, so that the delay cannot fill one more. */
export const SLACK_MS = 10
const BEFORE_MS = 150
const AFTER_MS = 40
const OVERLOAD = 3
/** After this time, what a limiter at rest had accumulated is used up. */
const SETTLED_MS = 2 * PERIOD_MS

/** Records when units passed, ms. */
class Passes {
  readonly times: number[] = []
  readonly #take: Take

  constructor(take: Take) {
    this.#take = take
  }

  async ask(key: string, units: number): Promise<void> {
    const one = async () => {
      if (await this.#take(key)) this.times.push(Date.now())
    }
    await Promise.all(Array.from({ length: units }, one))
  }

  /** The largest number in any window of one period, from a time on. */
  most(fromMs = 0): number {
    const times = this.times.filter((ms) => ms >= fromMs).sort((a, b) => a - b)
    return mostWithin(times, PERIOD_MS - SLACK_MS)
  }
}

const until = (ms: number): Promise<void> => sleep(Math.max(0, ms - Date.now()))

async function attackOnce(take: Take, key: string, limit: number, boundaryMs: number, opens: boolean): Promise<number> {
  const passes = new Passes(take)
  await until(boundaryMs - PERIOD_MS + AFTER_MS / 2)
  if (opens) await passes.ask(key, 1)
  await until(boundaryMs - BEFORE_MS)
  await passes.ask(key, limit)
  await until(boundaryMs + AFTER_MS)
  await passes.ask(key, limit)
  return passes.most()
}

/**
 * The boundary attack: the limit just before the end of a window, and again just after it. Windows begin at whole
 * seconds or with the first unit: both are tried, each with its own key.
 * @returns the most that passed within one period
 */
export async function attack(take: Take, key: string, limit: number): Promise<number> {
  const boundaryMs = (Math.floor(Date.now() / PERIOD_MS) + 2) * PERIOD_MS
  const tries = [false, true].map((opens) => attackOnce(take, `${key}-${opens}`, limit, boundaryMs, opens))
  return Math.max(...(await Promise.all(tries)))
}

export interface UnderOverload {
  /** The most within one period, from rest. */
  readonly most: number
  /** The same, once the accumulated units are used up. */
  readonly mostSettled: number
  /** The share of the limit that passed then. */
  readonly share: number
}

/** Requests three times the limit, unit by unit, for several periods. */
export async function overload(take: Take, key: string, limit: number, periods: number): Promise<UnderOverload> {
  const passes = new Passes(take)
  const startMs = Date.now()
  const forMs = SETTLED_MS + periods * PERIOD_MS
  const asking: Promise<void>[] = []
  for (let atMs = 0; atMs < forMs; atMs += PERIOD_MS / limit / OVERLOAD) {
    await until(startMs + atMs)
    asking.push(passes.ask(key, 1))
  }
  await Promise.all(asking)
  const fromMs = startMs + SETTLED_MS
  const settled = passes.times.filter((ms) => ms >= fromMs && ms < startMs + forMs).length
  return { most: passes.most(), mostSettled: passes.most(fromMs), share: settled / (limit * periods) }
}

/** The memory of all keys that belong to a limiter's key, including their names. */
export async function bytesOf(redis: Redis, key: string): Promise<number> {
  const names: string[] = []
  for await (const page of redis.scanStream({ match: `*${key}*` })) names.push(...(page as string[]))
  return sum(await Promise.all(names.map(async (name) => (await redis.memory('USAGE', name, 'SAMPLES', 0)) ?? 0)))
}
