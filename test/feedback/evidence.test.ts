import { beforeEach, describe, expect, test } from 'vitest'
import type { HeldJob } from '../../src/departure/held-job.ts'
import type { Feedback } from '../../src/feedback/feedback.ts'
import { useRedis } from '../support/redis.ts'
import { concurrency, fewer, HeldLoop, ok, pause, slow, unreachable } from './support/held-loop.ts'

// Which refusals hold the fleet, and what becomes of their jobs: the scripts are the real ones, only their clock is held.
const redis = useRedis(import.meta.url)
const loop = new HeldLoop(redis, 'evidence')
const client = redis.client()

beforeEach(async () => {
  await loop.queue.reset({ rate: '200/s' })
  await loop.fill(20)
})

/** As after 57014 and 503. */
const overloaded = slow({ factor: 0.7 })

/** The next job departs, and is refused soon after. */
async function nextRefused(
  ...[feedback, refusing]: Parameters<HeldLoop['refuse']> extends [unknown, ...infer R] ? R : never
) {
  await loop.pass(10)
  const job = await loop.next()
  return { job, reply: await loop.refuse(job, feedback, refusing) }
}

/** The same job once more, as when its own time has come. */
async function again(job: HeldJob): Promise<HeldJob> {
  await client.lrem(`${loop.queue.base}active`, 0, job.id)
  await client.rpush(`${loop.queue.base}active`, job.id)
  await client.set(`${loop.queue.base}${job.id}:lock`, job.token)
  return job
}

describe('without a time', () => {
  test.each([
    ['a pause', [pause(undefined, true)], false],
    ['a slowing', [overloaded], true],
    ['fewer at once', [pause(undefined, true), fewer()], false],
  ])('%s of one job holds no other: it comes again by itself', async (_, feedback, retried) => {
    const { reply } = await nextRefused(feedback, { adapt: true, retried })
    expect(reply).toMatchObject({ changes: [], throttled: 1, back: false, usesAttempt: false, afterMs: 1000 })
    expect([loop.rate, loop.pausedMs]).toEqual([200, 0])
    expect((await loop.depart(3, 50_000)).length).toBe(3)
  })

  test('a second job is evidence, and goes behind the one that probes', async () => {
    await nextRefused([pause(undefined, true)])
    const { job, reply } = await nextRefused([pause(undefined, true)])
    expect(reply).toMatchObject({ changes: [{ kind: 'pause', hard: true }], back: true })
    expect(loop.pausedMs).toBe(1000)
    await loop.pass(1000)
    const probe = await loop.next()
    expect(probe.id).not.toBe(job.id)
    expect(await loop.depart(3, 50_000)).toEqual([])
  })

  test('what one job gets twice is no evidence', async () => {
    const { job } = await nextRefused([pause(undefined, true)])
    await loop.pass(1000)
    const reply = await loop.refuse(await again(job), [pause(undefined, true)])
    expect(reply).toMatchObject({ changes: [], throttled: 2, afterMs: 2000 })
  })

  test('among calls that go well it takes five in a row, or more than one in 41', async () => {
    const refusing = () => ({ okUs: loop.nowUs - 1000, oks: 10 })
    const changes = []
    for (let i = 0; i < 7; i++)
      changes.push((await nextRefused([pause(undefined, true)], refusing())).reply.changes.length)
    // 40 for each, less ten that went well: 40, 70, 100, 130, 160, 190 and 200.
    expect(changes).toEqual([0, 0, 0, 0, 0, 0, 1])
    await loop.queue.reset({ rate: '200/s' })
    await loop.fill(200)
    for (let i = 0; i < 100; i++) {
      const { reply } = await nextRefused([pause(undefined, true)], { okUs: loop.nowUs, oks: 41 })
      expect(reply.changes).toEqual([])
    }
  })

  test('answers to what departed before are no further evidence, and use up no attempts', async () => {
    const jobs = [await loop.next(), await loop.next(), await loop.next(), await loop.next()]
    await loop.pass(20)
    const replies = []
    for (const job of jobs) {
      replies.push(await loop.refuse(job, [pause(undefined, true)], { sentUs: loop.nowUs - 20_000 }))
      await loop.pass(1)
    }
    expect(replies.map(({ changes }) => changes.length)).toEqual([0, 1, 0, 0])
    expect(replies.map(({ back, usesAttempt }) => [back, usesAttempt]).slice(1)).toEqual(Array(3).fill([true, false]))
    expect(loop.pausedMs).toBeCloseTo(1000 - 3, 0)
  })

  test('after two more refusals while others go well the job uses up its attempts', async () => {
    const { job } = await nextRefused([overloaded], { retried: true })
    const seen = []
    for (let i = 0; i < 3; i++) {
      await loop.pass(5000)
      seen.push(await loop.refuse(await again(job), [overloaded], { okUs: loop.nowUs - 1000, oks: 100, retried: true }))
    }
    expect(seen.map(({ afterMs, usesAttempt }) => [afterMs, usesAttempt])).toEqual([
      [2000, false],
      [4000, false],
      [0, true],
    ])
    expect(seen.flatMap(({ changes }) => changes)).toEqual([])
  })

  test('nothing is used up while nothing goes well', async () => {
    const [first, second] = [(await nextRefused([overloaded])).job, (await nextRefused([overloaded])).job]
    for (let i = 0; i < 10; i++) {
      await loop.pass(100_000)
      for (const job of [first, second])
        expect((await loop.refuse(await again(job), [overloaded])).usesAttempt).toBe(false)
    }
  })

  test('one that asks only for less speed lasts ten seconds at most', async () => {
    await nextRefused([overloaded], { retried: true })
    for (let i = 0; i < 12; i++) {
      await nextRefused([overloaded], { retried: true })
      await loop.pass(60_000)
    }
    await nextRefused([overloaded], { retried: true })
    expect(loop.pausedMs).toBe(10_000)
  })

  test('a job with a priority waits by itself, so that another probes', async () => {
    await loop.queue.reset({ rate: '200/s' })
    for (let i = 0; i < 3; i++) await loop.queue.add({ priority: 1 })
    await nextRefused([pause(undefined, true)])
    const { job, reply } = await nextRefused([pause(undefined, true)])
    expect(job.score).not.toBe('')
    expect(reply).toMatchObject({ back: false, afterMs: expect.any(Number) })
    expect(reply.afterMs).toBeGreaterThanOrEqual(1000)
  })
})

describe('a suspicion', () => {
  const adapting = { adapt: true, retried: true }

  /** Refusals of so many jobs in a row. */
  async function row(count: number, feedback: readonly Feedback[] = [overloaded]) {
    const changes = []
    for (let i = 0; i < count; i++) changes.push(...(await nextRefused(feedback, adapting)).reply.changes)
    return changes.map(({ kind }) => kind)
  }

  /** The pause is over, and its probe goes well. */
  async function probeGoesWell(): Promise<HeldJob> {
    await loop.pass(loop.pausedMs)
    const probe = await loop.next()
    const okUs = loop.nowUs
    await loop.pass(10)
    const { changes } = await loop.tell(ok(), { sentUs: okUs, oks: 1, okUs })
    expect(changes).toMatchObject([{ kind: 'resumed' }])
    return probe
  }

  test('pauses for a probe from behind the head, and slows nothing: what goes well ends it', async () => {
    const head = await client.lrange(`${loop.queue.base}wait`, -10, -1)
    expect(await row(2, [pause(undefined, true), fewer()])).toEqual(['pause'])
    expect([loop.rate, loop.pausedMs]).toEqual([200, 1000])
    const probe = await probeGoesWell()
    expect(head.slice(-3)).not.toContain(probe.id)
    expect(loop.shape.feedback.doubt).toBeUndefined()
    // It takes as many again as where calls go well.
    expect(await row(4)).toEqual([])
    expect(await row(1)).toEqual(['pause'])
    expect(loop.rate).toBe(200)
  })

  test('is confirmed by a probe that is refused: then the rate falls', async () => {
    expect(await row(2)).toEqual(['pause'])
    await loop.pass(loop.pausedMs)
    expect(await row(1)).toEqual(['pause', 'slow'])
    expect([loop.rate, loop.pausedMs]).toEqual([140, 2000])
  })

  test('is had three times a minute', async () => {
    await loop.fill(30)
    const seen = []
    for (const count of [2, 5, 5, 5]) {
      seen.push(await row(count))
      if (loop.pausedMs > 0) await probeGoesWell()
    }
    expect(seen).toEqual([['pause'], ['pause'], ['pause'], ['slow']])
  })

  test('knows what ran before its probe only until a call goes well', async () => {
    await loop.fill(30)
    for (let i = 0; i < 10; i++) {
      await loop.pass(10)
      await loop.next()
    }
    expect(await row(2, [pause(undefined, true), fewer()])).toEqual(['pause'])
    await probeGoesWell()
    // Two minutes later only one job runs at a time, and calls go well in between.
    await loop.pass(120_000)
    await client.del(`${loop.queue.base}active`)
    const changes: string[] = []
    while (changes.length === 0) {
      await loop.pass(10)
      const sentUs = loop.nowUs
      await loop.pass(10)
      await loop.tell(ok(), { sentUs, oks: 1, okUs: sentUs })
      changes.push(...(await row(1, [pause(undefined, true), fewer()])))
      await client.del(`${loop.queue.base}active`)
    }
    expect(changes).toEqual(['pause', 'slow'])
  })

  test('is none where calls went well between the refusals', async () => {
    await row(1)
    for (let i = 0; i < 4; i++) {
      await loop.pass(10)
      const sentUs = loop.nowUs
      await loop.pass(10)
      await loop.tell(ok(), { sentUs, oks: 1, okUs: sentUs })
      await row(1)
    }
    expect(await row(1)).toEqual(['slow'])
    expect(loop.pausedMs).toBe(0)
  })
})

describe('with a time', () => {
  test('one answer holds the fleet, and its job goes first again', async () => {
    const { job, reply } = await nextRefused([pause(3000, true)], { okUs: loop.nowUs, oks: 100 })
    expect(reply).toMatchObject({ changes: [{ kind: 'pause' }], back: true })
    await loop.pass(3000)
    expect((await loop.next()).id).toBe(job.id)
  })

  test('what one job gets again and again while others go well is its own time', async () => {
    const { job } = await nextRefused([pause(3000, true)], { adapt: true })
    await loop.pass(3000)
    await loop.refuse(await loop.next(), [pause(3000, true)], { adapt: true })
    const { rate } = loop
    await loop.pass(3000)
    const probe = await loop.next()
    expect(probe.id).not.toBe(job.id)
    await loop.tell(ok(), { oks: 50 })
    await loop.pass(10)
    const reply = await loop.refuse(await again(job), [pause(3000, true)], { okUs: probe.slotUs, oks: 1, adapt: true })
    expect(reply).toMatchObject({ changes: [], back: false, usesAttempt: false, afterMs: 4000 })
    expect(loop.rate).toBe(rate)
  })

  test.each([
    ['the user’s code', 'user'],
    ['a rule', 'rule'],
  ] as const)('what %s says holds at once, whoever goes well', async (_, source) => {
    for (let i = 0; i < 4; i++) {
      const { reply } = await nextRefused([{ ...pause(undefined, true), source }], { okUs: loop.nowUs, oks: 1000 })
      expect(reply.changes).toMatchObject([{ kind: 'pause' }])
      await loop.pass(900_000)
    }
  })
})

describe('a destination that can not be reached', () => {
  test('pauses for one job, with a probe, and uses up no attempt', async () => {
    const { reply } = await nextRefused([unreachable], { adapt: true })
    expect(reply).toMatchObject({ changes: [{ kind: 'pause', hard: true }], back: true, usesAttempt: false })
    expect([loop.rate, loop.pausedMs]).toEqual([200, 1000])
  })

  test('is asked again after half a minute at most, each time by another job', async () => {
    const seen = []
    const probes = new Set<string>()
    for (let i = 0; i < 8; i++) {
      const { job, reply } = await nextRefused([unreachable])
      expect(reply.usesAttempt).toBe(false)
      probes.add(job.id)
      seen.push(loop.pausedMs)
      await loop.pass(loop.pausedMs)
    }
    expect(seen).toEqual([1, 2, 4, 8, 16, 30, 30, 30].map((s) => s * 1000))
    expect(probes.size).toBe(8)
  })

  test('ends a job after three days, not after so many calls', async () => {
    await loop.queue.reset({ rate: '200/s' })
    await loop.fill(1)
    let job = await loop.next()
    const [startedUs, DAYS_3_US] = [loop.nowUs, 3 * 86_400e6]
    const refused = async () => {
      const reply = await loop.refuse(job, [unreachable])
      await loop.pass(Math.max(loop.pausedMs, reply.afterMs))
      if (reply.back) job = await loop.next()
      return reply
    }
    // A hundred calls took 48 minutes.
    for (let i = 1; i <= 150; i++)
      expect(await refused()).toMatchObject({ throttled: i, isGivenUp: false, usesAttempt: false })
    await loop.queue.advanceTo(startedUs + DAYS_3_US - 1000)
    expect((await refused()).isGivenUp).toBe(false)
    await loop.queue.advanceTo(startedUs + DAYS_3_US)
    expect(await refused()).toMatchObject({ throttled: 152, isGivenUp: true })
  })

  test('is not one host of many: those that go well meanwhile are evidence too', async () => {
    const { reply } = await nextRefused([unreachable], { okUs: loop.nowUs, oks: 20 })
    expect(reply).toMatchObject({ changes: [], afterMs: 1000 })
  })

  test('goes on at the rate of before, once a probe went well', async () => {
    await nextRefused([unreachable], { adapt: true })
    await loop.pass(1000)
    await loop.next()
    const { changes } = await loop.tell(ok())
    expect(changes).toMatchObject([{ kind: 'resumed' }])
    expect(loop.rate).toBe(200)
    expect(loop.shape.feedback.pauses).toBeUndefined()
  })
})

describe('a target', () => {
  const target = (sameUs?: number, othersUs?: number) => ({ id: 'path', sameUs, othersUs })

  test('that goes on being refused while others go well is no evidence, whatever its jobs', async () => {
    await nextRefused([overloaded], { retried: true, target: target() })
    for (let i = 0; i < 10; i++) {
      const refusing = { retried: true, target: target(undefined, loop.nowUs), okUs: loop.nowUs }
      expect((await nextRefused([overloaded], refusing)).reply.changes).toEqual([])
    }
  })

  test('that went well since is not to blame', async () => {
    await nextRefused([overloaded], { retried: true, target: target() })
    await loop.pass(100)
    const refusing = () => ({ retried: true, target: target(loop.nowUs, loop.nowUs), okUs: loop.nowUs })
    for (let i = 0; i < 3; i++) expect((await nextRefused([overloaded], refusing())).reply.changes).toEqual([])
    expect((await nextRefused([overloaded], refusing())).reply.changes).toMatchObject([{ kind: 'pause' }])
  })

  test('is forgotten with the others', async () => {
    const key = `${loop.queue.base}meta:refused`
    await client.hset(key, Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`t${i}`, '1 1'])))
    await nextRefused([overloaded], { target: target() })
    expect(await client.hkeys(key)).toEqual(['path'])
    expect(await client.pttl(key)).toBeGreaterThan(0)
  })
})

describe('fewer at once', () => {
  const refused = (sentUs = loop.nowUs) => loop.tell(fewer(), { sentUs, adapt: false })
  const limit = () => loop.shape.number('concurrency')
  beforeEach(() => loop.queue.reset({ rate: '200/s', concurrency: 10 }))

  /** Calls go well for so long. */
  async function well(ms: number): Promise<void> {
    await loop.pass(ms)
    await loop.tell(ok(), { oks: 1, adapt: false })
  }

  test('is half of it, once for all who heard of it, and never nothing', async () => {
    const seen = []
    for (let i = 0; i < 5; i++) {
      const sentUs = loop.nowUs
      for (let heard = 0; heard < 3; heard++) await refused(sentUs)
      seen.push(limit())
      await loop.pass(1000)
    }
    expect(seen).toEqual([5, 2, 1, 1, 1])
  })

  test('rises by steps each second up to what was refused, and then each quiet period', async () => {
    await refused()
    const seen = [limit()]
    for (let i = 0; i < 5; i++) {
      await well(1000)
      seen.push(limit())
    }
    expect(seen).toEqual([5, 6, 7, 8, 9, 9])
    await well(10_000)
    expect(limit()).toBe(10)
    expect(loop.shape.feedback.concurrency).toBeUndefined()
    expect(await client.hget(`${loop.queue.base}meta`, 'concurrency')).toBe('10')
  })

  test('does not rise where nothing goes well, and ends by itself all the same', async () => {
    await refused()
    await loop.pass(899_999)
    expect(limit()).toBe(5)
    await loop.pass(1)
    expect(limit()).toBe(10)
  })

  test('rises to what somebody sets meanwhile, and no further', async () => {
    await refused()
    await loop.queue.backend.store.override({ concurrency: 7 }, 'test', 'test', undefined)
    for (let i = 0; i < 6; i++) await well(10_000)
    expect(limit()).toBe(7)
    await loop.queue.backend.store.override({ concurrency: { clear: true } }, 'test', 'test', undefined)
    expect(limit()).toBe(10)
  })

  test('does not replace a number that the other side gave', async () => {
    await loop.tell(concurrency(3, 60_000), { adapt: false })
    await refused()
    for (let i = 0; i < 3; i++) await well(10_000)
    expect(limit()).toBe(3)
  })
})
