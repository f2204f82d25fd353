import { RedisQueueBackend } from 'bullmq'
import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { ESTIMATE } from '../../src/admission/add-call.ts'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import type { AdmissionEstimate } from '../../src/admission/reply.ts'
import { CannotStartInTimeError } from '../../src/errors.ts'
import { encodeQueueLimits, type QueueLimit } from '../../src/limits/queue-limits.ts'
import type { GroupView } from '../../src/queue/groups.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const held = new HeldQueue(redis, client, 'held')
afterAll(() => held.close())

const ALGORITHMS: readonly Partial<QueueLimit>[] = [
  { rate: '10/min', burst: 10 },
  { algorithm: 'token-bucket', rate: '10/min', burst: 10 },
  { algorithm: 'leaky-bucket', rate: '10/min', burst: 10 },
  { algorithm: 'fixed-window', rate: '10/min' },
  { algorithm: 'fixed-window', rate: '10/min', align: 'first' },
  { algorithm: 'sliding-window-log', rate: '10/min' },
  { algorithm: 'sliding-window-counter', rate: '10/min' },
]

const per = (rule: Partial<QueueLimit> = ALGORITHMS[0] as Partial<QueueLimit>, name = 'tokens') =>
  ({ name, by: 'group', unit: 'tokens', ...rule }) as QueueLimit

function of(group: string | undefined, tokens: number, more: ShapedJobsOptions = {}): ShapedJobsOptions {
  return { costs: { tokens }, ...(group === undefined ? {} : { group: { id: group } }), ...more }
}

/** When the jobs of each group left, after the start, in s; that of jobs without one is ''. */
async function starts(jobs = 1, horizonUs = 0): Promise<Record<string, number[]>> {
  const found: Record<string, number[]> = {}
  for (const { id, slotUs } of await held.drain(jobs, horizonUs)) {
    const job = (await held.queue.getJob(id))!
    const group = (job.opts as ShapedJobsOptions).group?.id ?? ''
    found[group] = [...(found[group] ?? []), (slotUs - START_US) / 1_000_000]
  }
  return found
}

const stateKeys = () => client.keys(`${held.base}meta:group:limit:*`)
const run = (script: string, ...args: string[]) => held.backend.store.run(script, args)
const rowOf = async (group: string) => (await held.backend.store.view<GroupView>('group', { group }))?.row

describe.each(ALGORITHMS.map((rule) => [`${rule.algorithm ?? 'gcra'} ${rule.align ?? ''}`, rule] as const))(
  'a limit per group: %s',
  (_name, rule) => {
    test('each group leaves when it would under that limit alone in a queue', async () => {
      const job = fc.record({ group: fc.constantFrom('a', 'b', undefined), tokens: fc.integer({ min: 0, max: 10 }) })
      await fc.assert(
        fc.asyncProperty(
          fc.array(job, { minLength: 1, maxLength: 14 }),
          fc.integer({ min: 1, max: 3 }),
          fc.constantFrom(0, 50_000),
          async (jobs, wanted, horizonUs) => {
            await held.reset({ groups: {}, limits: [per(rule)] })
            for (const { group, tokens } of jobs) await held.add(of(group, tokens))
            const together = await starts(wanted, horizonUs)
            for (const group of ['a', 'b', undefined]) {
              const own = jobs.filter((one) => one.group === group)
              const { by: _, ...alone } = per(rule)
              await held.reset({ limits: [alone as QueueLimit] })
              for (const { tokens } of own) await held.add(of(undefined, tokens))
              const expected = (await starts(wanted, horizonUs))[''] ?? []
              const found = together[group ?? ''] ?? []
              expect(found).toHaveLength(expected.length)
              for (const [i, at] of found.entries()) expect(Math.abs(at - (expected[i] as number))).toBeLessThan(0.0001)
            }
          },
        ),
        { numRuns: 15 },
      )
    })

    test('what a job cost more or less is that of its group alone, and a group that is held goes sooner', async () => {
      await held.reset({ groups: {}, limits: [per(rule)] })
      const first = await held.add(of('a', 10))
      for (const group of ['a', 'b']) await held.add(of(group, 10))
      const { grants } = await held.depart(2)
      expect(grants).toHaveLength(2)
      expect((await held.depart(1)).stop).toBe('closed')
      expect(await run('settle-cost', first.id!, '1', '{"tokens":0}', '60000')).toBe(1)
      expect((await held.depart(1)).grants).toHaveLength(1)

      await held.reset({ groups: {}, limits: [per(rule)] })
      const cheap = await held.add(of('a', 1))
      for (const group of ['b', 'a', 'b']) await held.add(of(group, group === 'a' ? 9 : 1))
      expect((await held.depart(1)).grants[0]?.id).toBe(cheap.id)
      await run('settle-cost', cheap.id!, '1', '{"tokens":10}', '60000')
      const found = await starts()
      expect(found.b).toEqual([0, 0])
      expect(found.a![0]).toBeGreaterThan(1)
    })
  },
)

test('a group that a limit holds delays no other: the queue keeps its rate while any group may go', async () => {
  await held.reset({ rate: '10/s', groups: {}, limits: [per({ rate: '1/min', burst: 2 })] })
  for (let i = 0; i < 4; i++) await held.add(of('a', 1))
  for (let i = 0; i < 20; i++) await held.add(of('b', 0))
  const { a, b } = await starts()
  // 22 slots in a row, of which a takes two.
  expect([...a!.slice(0, 2), ...b!].toSorted((one, other) => one - other)).toEqual(
    Array.from({ length: 22 }, (_, i) => i / 10),
  )
  expect(a![2]! - a![0]!).toBeCloseTo(60, 3)
  expect(a![3]! - a![2]!).toBeCloseTo(60, 3)
})

test('jobs without a group are one group, also where they go first', async () => {
  for (const ungrouped of ['fair', 'first'] as const) {
    await held.reset({ groups: { ungrouped }, limits: [per({ rate: '1/min', burst: 2 })] })
    for (const priority of [0, 3, 0, 5]) await held.add(of(undefined, 1, { priority }))
    for (let i = 0; i < 3; i++) await held.add(of('a', 1))
    const found = await starts()
    expect(found['']!.map(Math.round)).toEqual([0, 0, 60, 120])
    expect(found.a!.map(Math.round)).toEqual([0, 0, 60])
  }
})

test('the limits of the queue, of a group and its rate all hold', async () => {
  const queueWide: QueueLimit = { name: 'all', rate: '5/s', burst: 1, unit: 'calls' }
  await held.reset({
    groups: { rate: '1/s' },
    limits: [per({ algorithm: 'fixed-window', rate: '3/min' }), queueWide, per({ rate: '60/min', burst: 3 }, 'second')],
  })
  for (let i = 0; i < 4; i++) for (const group of ['a', 'b']) await held.add(of(group, 1))
  const { a, b } = await starts()
  const next = Math.ceil(START_US / 60_000_000) * 60 - START_US / 1_000_000
  expect(a!.slice(0, 3).map(Math.round)).toEqual([0, 1, 2])
  expect(a![3]).toBeCloseTo(next, 3)
  expect(b![3]! - a![3]!).toBeCloseTo(0.2, 3)
})

test('a group keeps one key for each limit, which expires; a job that takes nothing keeps none', async () => {
  await held.reset({ groups: {}, limits: [per(), per({ algorithm: 'sliding-window-log', rate: '9/min' }, 'log')] })
  for (const tokens of [0, 0, 2]) await held.add(of('b c', tokens))
  await held.depart(2)
  expect(await stateKeys()).toEqual([])
  await held.depart(1)
  const keys = (await stateKeys()).toSorted()
  expect(keys).toEqual([`${held.base}meta:group:limit:log:l:b c`, `${held.base}meta:group:limit:tokens:g:b c`])
  for (const key of keys) {
    const leftMs = await held.expiryMs(key)
    // A bucket lasts an hour longer than what it owes.
    const paidMs = key.includes(':g:') ? 3_600_000 : 0
    expect(leftMs - paidMs).toBeGreaterThan(10_000)
    expect(leftMs - paidMs).toBeLessThanOrEqual(62_000)
  }
})

test('another limit applies at once to the groups that the old one holds', async () => {
  await held.reset({ groups: {}, limits: [per({ rate: '1/day' })] })
  for (const group of ['a', 'a', 'b', 'b']) await held.add(of(group, 1))
  for (let i = 0; i < 2; i++) await held.add(of(undefined, 1))
  await held.depart(9)
  expect((await held.depart(9)).stop).toBe('closed')
  await held.backend.store.override({ limits: encodeQueueLimits([per()]) }, 'ops', 'test', undefined)
  expect((await held.depart(9)).grants).toHaveLength(3)
})

test('after a change among very many held groups, each is in one state: also jobs without a group', async () => {
  await held.reset({ groups: {}, limits: [per({ rate: '1/day' })] })
  const groups = Array.from({ length: 120 }, (_, i) => `g${i}`)
  for (const names of [groups, [undefined]]) {
    // Jobs without a group are the last to be looked at again.
    await held.advanceTo(held.nowUs + 1_000_000)
    const opts = names.flatMap((group) => [of(group, 1), of(group, 1)])
    await held.queue.addBulk(opts.map((one) => ({ name: 'job', data: {}, opts: one })))
    while ((await held.depart(50)).grants.length > 0);
  }
  await held.backend.store.override({ limits: encodeQueueLimits([per({ rate: '2/day' })]) }, 'ops', 'test', undefined)
  for (let i = 0; i < 3; i++) {
    await held.depart(1)
    const states = ['ready', 'limited', 'stale'].map((state) =>
      client.zrange(`${held.base}meta:groups:${state}`, '0', '-1'),
    )
    expect((await Promise.all(states)).flat().toSorted()).toEqual(['', ...groups].toSorted())
  }
})

test.each([
  ['that a limit held', [per({ rate: '1/day' })]],
  ['that nothing held', []],
])(
  'groups %s and whose jobs a stock client has drained are in no line; very many such jobs hold up no other',
  async (_, limits) => {
    await held.reset({ groups: {}, ...(limits.length > 0 ? { limits } : {}) })
    const bulkOf = (group: string | undefined, count: number) =>
      Array.from({ length: count }, () => ({ name: 'job', data: {}, opts: of(group, 1) }))
    await held.queue.addBulk([...bulkOf('a', 150), ...bulkOf('b', 2), ...bulkOf(undefined, 2)])
    expect((await held.depart(3)).grants).toHaveLength(3)
    await RedisQueueBackend.prototype.drain.call(held.backend, false)
    await held.add(of('a', 0))
    // A worker asks again, at once.
    expect(await held.depart(1)).toMatchObject({ grants: [], stop: 'closed', nextUs: held.nowUs })
    while ((await held.depart(1)).grants.length === 0);
    expect((await held.depart(1)).stop).toBe('empty')
    const lines = ['ready', 'limited', 'stale', 'tags'].map((name) => `${held.base}meta:groups:${name}`)
    expect(await client.exists(`${held.base}meta:group:jobs:a`, ...lines)).toBe(0)
  },
)

describe('without groups', () => {
  const before = { rate: '10/s', limits: [per()] }
  const limits = encodeQueueLimits([per()])
  const stored = () => client.hgetall(`${held.base}meta:shape`)

  test('a limit per group is refused before anything is changed', async () => {
    await expect(held.reset(before)).rejects.toThrow('limit "tokens" is per group, and needs shape.groups')
    await held.reset({ rate: '10/s' })
    await held.depart(1)
    const kept = await stored()
    const override = held.backend.store.override({ limits, rate: [1, 1000] }, 'ops', 'test', undefined)
    await expect(override).rejects.toThrow(/per group, and needs shape\.groups/)
    expect(await stored()).toEqual(kept)
  })

  test('the groups that it needs are not taken away', async () => {
    await held.reset({ groups: {}, limits: [per()] })
    await held.depart(1)
    const kept = await stored()
    const override = held.backend.store.override({ groups: null }, 'ops', 'test', undefined)
    await expect(override).rejects.toThrow(/per group, and needs shape\.groups/)
    expect(await stored()).toEqual(kept)
    await held.backend.store.override({ groups: null, limits: null }, 'ops', 'test', undefined)
    await held.backend.store.override({ limits, groups: '{}' }, 'ops', 'test', undefined)
  })

  test('where the groups end by themselves, all jobs are one group', async () => {
    await held.reset({ rate: '100/s' })
    await held.backend.store.override({ groups: '{}' }, 'ops', 'test', 1000)
    await held.backend.store.override({ limits }, 'ops', 'test', undefined)
    await held.advanceTo(START_US + 2_000_000)
    for (let i = 0; i < 12; i++) await held.add(of(undefined, 1))
    const found = (await starts())['']!
    expect(found[9]).toBeCloseTo(2.09, 3)
    expect(found[11]).toBeGreaterThan(8)
  })
})

describe('estimates', () => {
  async function offer(opts: ShapedJobsOptions): Promise<AdmissionEstimate> {
    let found: AdmissionEstimate | undefined
    const take = (estimate: AdmissionEstimate) => {
      found = estimate
    }
    await held.add({ ...opts, [ESTIMATE]: take } as ShapedJobsOptions)
    return found!
  }

  test.each(ALGORITHMS.map((rule) => [`${rule.algorithm ?? 'gcra'} ${rule.align ?? ''}`, rule] as const))(
    'an offer counts what the limit of its group has let pass and has before it: %s',
    async (_name, rule) => {
      await held.reset({ rate: '100/s', groups: {}, limits: [per(rule)] })
      for (let i = 0; i < 6; i++) await held.add(of('a', 4))
      await held.depart(1)
      const { startsAt } = await offer(of('a', 4))
      const other = await offer(of('b', 4))
      expect(other.startsAt!.getTime() * 1000 - START_US).toBeLessThan(100_000)
      const last = (await starts()).a!.at(-1)!
      expect(startsAt!.getTime() / 1000 - START_US / 1_000_000).toBeCloseTo(last, 0)
    },
  )

  test('a full group says when its limit lets one of its jobs go', async () => {
    await held.reset({ rate: '100/s', capacity: 100, groups: { capacity: 2 }, limits: [per()] })
    for (let i = 0; i < 3; i++) {
      await held.add(of('a', 10))
      await held.depart(1)
    }
    const { retryAfterMs } = await held.add(of('a', 10)).catch((error) => error)
    expect(retryAfterMs).toBeGreaterThan(59_000)
    expect(retryAfterMs).toBeLessThanOrEqual(60_000)
  })

  test('maxWaitMs refuses the jobs of the group whose limit is used up, and takes those of others', async () => {
    await held.reset({ rate: '100/s', maxWaitMs: 30_000, groups: {}, limits: [per()] })
    for (let i = 0; i < 3; i++) await held.add(of('a', 5))
    await expect(held.add(of('a', 5))).rejects.toBeInstanceOf(CannotStartInTimeError)
    await held.add(of('b', 5))
    await held.add(of(undefined, 5))
  })

  test('a group and its queue say which limit holds them', async () => {
    await held.reset({ rate: '100/s', groups: {}, limits: [per()] })
    for (const tokens of [10, 5, 5]) await held.add(of('a', tokens))
    await held.depart(1)
    expect(await rowOf('a')).toMatchObject({ state: 'limited', waiting: 2 })
    expect((await held.depart(1)).stop).toBe('closed')
    expect(await client.hget(`${held.base}meta:meter`, 'holds')).toBe('limits:tokens')
    expect((await rowOf('a'))?.heldBy).toBe('tokens')
  })

  test('with ageing, too: the job that has aged waits for it, not a more important one that takes nothing', async () => {
    await held.reset({ rate: '100/s', priorityAgeingMs: 1000, groups: {}, limits: [per()] })
    for (let i = 0; i < 2; i++) await held.add(of('a', 10, { group: { id: 'a', priority: 5 } }))
    expect((await held.depart(1)).grants).toHaveLength(1)
    await held.advanceTo(START_US + 10_000_000)
    await held.add(of('a', 0))
    expect((await held.depart(1)).stop).toBe('closed')
    expect(await client.hget(`${held.base}meta:meter`, 'holds')).toBe('limits:tokens')
    expect((await rowOf('a'))?.heldBy).toBe('tokens')
  })
})

test('a window that begins with its first unit does not begin with a job of the group that went back', async () => {
  await held.reset({ groups: {}, limits: [per({ algorithm: 'fixed-window', rate: '10/min', align: 'first' })] })
  for (const group of ['a', 'a', 'b']) await held.add(of(group, 10))
  const { grants } = await held.depart(3)
  expect(grants).toHaveLength(2)
  const job = grants[0]!
  const lock = (await client.get(`${held.base}${job.id}:lock`))!
  await run('give-back', '', '0', '0', '', '', '', job.id, lock, job.score ?? '')
  await held.advanceTo(START_US + 10_000_000)
  const found = await starts()
  expect(found.a!.map(Math.round)).toEqual([10, 70])
})

test('what another job has really cost stays in such a window, and no more', async () => {
  await held.reset({ groups: {}, limits: [per({ algorithm: 'fixed-window', rate: '10/min', align: 'first' })] })
  const first = await held.add(of('a', 5))
  await held.add(of('a', 5))
  const job = (await held.depart(2)).grants.find(({ id }) => id !== first.id)!
  await run('settle-cost', first.id!, '1', '{"tokens":2}', '60000')
  const lock = (await client.get(`${held.base}${job.id}:lock`))!
  await run('give-back', '', '0', '0', '', '', '', job.id, lock, job.score ?? '')
  await held.add(of('a', 3))
  await held.advanceTo(START_US + 10_000_000)
  expect((await starts()).a!.map(Math.round)).toEqual([10, 10])
})
