import { setTimeout as sleep } from 'node:timers/promises'
import type { Cluster, Redis } from 'ioredis'
import { vi } from 'vitest'
import { createLimiter, type Limiter, type LimiterOptions } from '../../../src/limits/index.ts'
import type { TestRedis } from '../../support/redis.ts'

/** Longer than any machine under load stalls: these tests are about limits, not about deadlines. */
export const PATIENT = { timeoutMs: 10_000 } as const

export interface Limiters {
  readonly client: Redis
  /** A limiter under the file's prefix. */
  limiter(options: LimiterOptions): Limiter
  /** How many commands an action sends. */
  sentBy(act: () => Promise<unknown>): Promise<number>
}

/** Call it once, at the top of the file, after `useRedis`. */
export function useLimiters(redis: TestRedis): Limiters {
  const client = redis.client()
  return {
    client,
    limiter: (options) => createLimiter(client, { prefix: redis.prefix, ...PATIENT, ...options }),
    sentBy: async (act) => {
      const send = vi.spyOn(client, 'sendCommand')
      await act()
      const count = send.mock.calls.length
      send.mockRestore()
      return count
    },
  }
}

/** Only the monotonic clock stands still: Redis and timers go on. */
export function stopClock(): void {
  vi.useFakeTimers({ toFake: ['performance'] })
}

/** Redis's clock, ms. */
export async function redisTime(client: Redis): Promise<number> {
  const [seconds, micros] = await client.time()
  return Number(seconds) * 1000 + Number(micros) / 1000
}

/** What came of an action, and between which two times of Redis's clock it ran. */
export interface Timed<T> {
  readonly value: T
  readonly from: number
  readonly to: number
}

export async function timed<T>(client: Redis, act: () => Promise<T>): Promise<Timed<T>> {
  const from = await redisTime(client)
  const value = await act()
  return { value, from, to: await redisTime(client) }
}

/** Timers fire early now and then. */
export async function sleepUntil(client: Redis, timeMs: number): Promise<void> {
  for (;;) {
    const left = timeMs - (await redisTime(client))
    if (left <= 0) return
    await sleep(Math.ceil(left))
  }
}

/** Every key whose name holds that text. */
export async function keysWith(client: Redis | Cluster, text: string): Promise<string[]> {
  const nodes = 'nodes' in client ? client.nodes('master') : [client]
  const found = await Promise.all(nodes.map((node) => node.keys(`*${text}*`)))
  return found.flat().sort()
}

/** Those of them that are about keys of a limit: not what a call charged, in case that it is sent again. */
export async function statesWith(client: Redis | Cluster, text: string): Promise<string[]> {
  return (await keysWith(client, text)).filter((key) => !/:last:|~turn:/.test(key))
}

/** How many answers let the request pass. */
export function countAllowed(answers: readonly { readonly allowed: boolean }[]): number {
  return answers.filter(({ allowed }) => allowed).length
}

export function times<T>(count: number, make: (i: number) => T): T[] {
  return Array.from({ length: count }, (_, i) => make(i))
}
