import { expect } from 'vitest'
import type { EncodedAdapt } from '../../../src/feedback/options.ts'
import { checkFeedbackOptions } from '../../../src/feedback/options.ts'
import { createRandom } from '../../../workers/demo/outbox/random.ts'
import type { TestRedis } from '../../support/redis.ts'
import { ClosedLoop } from './closed-loop.ts'
import { EPOCH_MS, Fleet, type Second } from './fleet.ts'
import type { LimitedServer } from './limited-server.ts'

/** Calls a second, as the shape has it. */
export const CONFIGURED = 200
/** The loop has so long to find a limit, s. */
const SEARCH_S = 60
/** Of the limit, while it is looked for. */
const LEAST_SEARCH_SHARE = 0.8
/** Of the limit, in every minute after that. A full bucket and a window that began earlier let a little more through. */
const LEAST_SHARE = 0.9
const MOST_SHARE = 1.05
const MOST_REFUSED = 0.02
/**
 * Quiet periods until the configured rate is back: at most 8 at the wall, the last with a step of 1 %; then 6 steps that
 * double (2, 4, … 64 %), one for the short way back to the wall, and one for reports that come a little after each period.
 */
const RECOVERY_PERIODS = 8 + 6 + 1 + 1

/** A limit of the server, calls a second, and how long it holds. */
export interface Phase {
  readonly limit: number
  readonly seconds: number
}

/** The whole way: the fleet starts at the configured rate and meets one limit after the other. */
export async function simulate(redis: TestRedis, name: string, server: LimitedServer, phases: readonly Phase[]) {
  const { between } = createRandom(1)
  const base = `${redis.prefix}:${name.replaceAll(' ', '-')}:`
  const loop = new ClosedLoop(redis.client(), base, () => between(0, 999_999) / 1_000_000)
  await loop.declare(EPOCH_MS * 1000, { rate: `${CONFIGURED}/s` })
  const adapt = checkFeedbackOptions({ adapt: true }).adapt as EncodedAdapt
  const fleet = new Fleet(loop, server, adapt)
  let from = 0
  for (const { limit, seconds } of phases) {
    await fleet.run(limit, seconds)
    const seen = fleet.seconds.slice(from, from + seconds)
    if (limit < CONFIGURED) expectFound(`${name}, ${limit}/s`, limit, seen)
    else expectRecovered(`${name}, lifted`, seen, adapt.quietMs)
    from += seconds
  }
}

function expectFound(what: string, limit: number, seconds: readonly Second[]): void {
  const search = seconds.slice(0, SEARCH_S)
  const early = sum(search, ({ sent, refused }) => sent - refused) / (limit * SEARCH_S)
  expect(early, `${what}: share of the limit, while it is looked for`).toBeGreaterThanOrEqual(LEAST_SEARCH_SHARE)
  const after = seconds.slice(SEARCH_S)
  for (let from = 0; from + 60 <= after.length; from += 60) {
    const minute = after.slice(from, from + 60)
    const share = sum(minute, ({ sent, refused }) => sent - refused) / (limit * 60)
    expect(share, `${what}: share of the limit, minute ${1 + from / 60}`).toBeGreaterThanOrEqual(LEAST_SHARE)
    expect(share, `${what}: share of the limit, minute ${1 + from / 60}`).toBeLessThanOrEqual(MOST_SHARE)
  }
  const refused = sum(after, (second) => second.refused) / sum(after, (second) => second.sent)
  expect(refused, `${what}: share of what was sent that was refused`).toBeLessThanOrEqual(MOST_REFUSED)
  report(what, limit, seconds, refused)
}

function expectRecovered(what: string, seconds: readonly Second[], quietMs: number): void {
  const low = seconds.slice(0, -1).findLastIndex(({ sent }) => sent < CONFIGURED * 0.98)
  if (process.env.SIMULATION) console.log(`${what}: back after ${low + 1} s`)
  expect(low + 1, `${what}: seconds until the configured rate`).toBeLessThanOrEqual((RECOVERY_PERIODS * quietMs) / 1000)
  expect(low + 2, `${what}: it came back`).toBeLessThan(seconds.length)
  expect(sum(seconds, ({ refused }) => refused)).toBe(0)
}

function report(what: string, limit: number, seconds: readonly Second[], refused: number): void {
  if (!process.env.SIMULATION) return
  const minutes = Array.from({ length: Math.floor(seconds.length / 60) }, (_, i) => {
    const minute = seconds.slice(i * 60, i * 60 + 60)
    return (sum(minute, (one) => one.sent - one.refused) / (limit * 60)).toFixed(3)
  })
  const early = seconds.slice(0, SEARCH_S)
  const first = sum(early, (one) => one.refused) / sum(early, (one) => one.sent)
  console.log(`${what}: share ${minutes.join(' ')}, refused ${pc(first)} in the first minute, then ${pc(refused)}`)
}

const pc = (share: number) => `${(share * 100).toFixed(2)} %`

function sum(seconds: readonly Second[], of: (second: Second) => number): number {
  return seconds.reduce((total, second) => total + of(second), 0)
}
