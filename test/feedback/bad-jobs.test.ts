import type { Feedback } from '../../src/feedback/feedback.ts'
import { checkFeedbackOptions } from '../../src/feedback/options.ts'
import { createRandom } from '../../workers/demo/outbox/random.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { useRedis } from '../support/redis.ts'
import { ClosedLoop } from './support/closed-loop.ts'
import { type BadAnswer, type BadJobs, EPOCH_MS, Fleet } from './support/fleet.ts'
import { BucketServer } from './support/limited-server.ts'

// Jobs that are refused whenever they are called, among others that are good: virtual time, the scripts are the real ones.
const redis = useRedis(import.meta.url)
useConcurrentTests()
const PER_SECOND = 100

const said = { scope: 'queue', source: 'status' } as const
/** 57014, and 503 without a time. */
const overloaded: BadAnswer = {
  found: [{ kind: 'slow', factor: 0.7, ...said, reason: '503' }],
  retried: true,
}
/** 421 */
const closing: BadAnswer = {
  found: [
    { kind: 'pause', forMs: undefined, hard: true, ...said, reason: '421' },
    { kind: 'concurrency', factor: 0.5, ttlMs: 900_000, ...said, reason: '421' },
  ],
  retried: false,
}
const refused = (answer: Partial<Feedback>): BadAnswer => ({
  found: [{ kind: 'pause', forMs: undefined, hard: true, ...said, reason: 'refused', ...answer } as Feedback],
  retried: false,
})
/** 429 with Retry-After: 1 */
const told = refused({ forMs: 1000 } as Partial<Feedback>)
/** ECONNREFUSED, of a queue whose jobs go to many hosts. */
const gone = refused({ about: 'destination' } as Partial<Feedback>)

let runs = 0

/** A fleet for so many seconds, and what became of the good jobs, each second. */
async function run(
  bad: BadJobs,
  { adapt = true, seconds = 40, limit = 1e6, perSecond = PER_SECOND, workers = 3 } = {},
) {
  const { between } = createRandom(1)
  runs += 1
  const loop = new ClosedLoop(redis.client(), `${redis.prefix}:bad-${runs}:`, () => between(0, 999_999) / 1_000_000)
  await loop.declare(EPOCH_MS * 1000, { rate: `${perSecond}/s` })
  const server = new BucketServer(limit, 10, 'nothing')
  const fleet = new Fleet(loop, server, checkFeedbackOptions({ adapt }).adapt, bad, workers)
  await fleet.run(limit, seconds)
  const good = fleet.seconds.map((second) => second.sent - second.refused)
  return { fleet, loop, good, share: good.reduce((sum, one) => sum + one, 0) / (perSecond * seconds) }
}

const one = (answer: BadAnswer, id = '1'): BadJobs => ({ answer: (jobId) => (jobId === id ? answer : undefined) })
const first = (count: number, answer: BadAnswer): BadJobs => ({
  answer: (jobId) => (Number(jobId) <= count ? answer : undefined),
})
const everyHundredth = (answer: BadAnswer): BadJobs => ({
  answer: (jobId) => (Number(jobId) % 100 === 57 ? answer : undefined),
})

test.each([
  ['503 and 57014', { answer: overloaded }],
  ['421', { answer: closing }],
  ['no connection', { answer: gone }],
])('one job in a hundred always gets %s: the good ones keep their rate', async (_, { answer }) => {
  for (const adapt of [true, false]) {
    const { share, fleet } = await run(everyHundredth(answer), { adapt })
    expect(share).toBeGreaterThanOrEqual(0.95)
    expect(fleet.failed).toBeGreaterThan(20)
  }
})

test.each([
  ['503 and 57014', { answer: overloaded, count: 1 }],
  ['421', { answer: closing, count: 1 }],
  ['no connection', { answer: gone, count: 1 }],
  ['503 and 57014, ten at the head', { answer: overloaded, count: 10 }],
  ['421, three at the head', { answer: closing, count: 3 }],
])('%s: the queue goes on without them', async (_, { answer, count }) => {
  for (const adapt of [true, false]) {
    const { good, fleet } = await run(first(count, answer), { adapt })
    const late = good.slice(20, 40).reduce((sum, n) => sum + n, 0)
    expect(late / (20 * PER_SECOND)).toBeGreaterThanOrEqual(0.9)
    expect(fleet.failed).toBe(count)
  }
})

test.each([
  ['503 and 57014', { answer: overloaded }],
  ['503 of one path', { answer: overloaded, isPath: true }],
  ['421', { answer: closing }],
  ['no connection', { answer: gone }],
])('ten jobs at the head always get %s: a hundred behind them are done within 10 s at 20/s', async (_, bad) => {
  for (const adapt of [true, false]) {
    for (const workers of [1, 4]) {
      const { answer } = first(10, bad.answer)
      const target = (jobId: string) => (answer(jobId) ? '/bad' : '/good')
      const jobs = { answer, ...('isPath' in bad && { target }) }
      const { good } = await run(jobs, { adapt, workers, perSecond: 20, seconds: 10 })
      const done = good.reduce((sum, n) => sum + n, 0)
      expect(done, `adapt ${adapt}, ${workers} workers`).toBeGreaterThanOrEqual(100)
    }
  }
})

test('an answer with a time holds the fleet, until one job gets it again and again', async () => {
  const { good } = await run(one(told, '500'))
  expect(good.filter((n) => n < PER_SECOND / 2).length).toBeGreaterThanOrEqual(1)
  expect(good.slice(20, 40).reduce((sum, n) => sum + n, 0)).toBeGreaterThanOrEqual(20 * PER_SECOND * 0.9)
})

test('half of the jobs go to a path that always answers 503: those to the other keep their rate', async () => {
  const isBad = (jobId: string) => Number(jobId) % 2 === 1
  const { good } = await run({
    answer: (jobId) => (isBad(jobId) ? overloaded : undefined),
    target: (jobId) => (isBad(jobId) ? '/bad' : '/good'),
  })
  // Each of the bad ones is called four times, which takes its part of the rate: a fifth is left.
  const calls = good.slice(20).reduce((sum, n) => sum + n, 0)
  expect(calls / (20 * PER_SECOND)).toBeGreaterThanOrEqual(0.85 / 5)
})
