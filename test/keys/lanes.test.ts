import { afterAll, describe, expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { CostTooHighError } from '../../src/errors.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const held = new HeldQueue(redis, client, 'held')
afterAll(() => held.close())

const by = (name: string, key: string | string[], rate: string, more: Partial<QueueLimit> = {}): QueueLimit => ({
  name,
  by: key,
  rate,
  ...more,
})

const add = (id: string, keys: Record<string, string>, more: ShapedJobsOptions = {}) =>
  held.add({ jobId: id, keys, ...more })

/** Who leaves, and how many seconds after the start. */
async function starts(jobs = 1, horizonUs = 0): Promise<string[]> {
  const all = await held.drain(jobs, horizonUs)
  return all.map(({ id, slotUs }) => `${id} ${Math.round((slotUs - START_US) / 1000) / 1000}`)
}

async function expectNothingLeft(): Promise<void> {
  const keys = await client.keys(`${held.base}meta:*`)
  expect(keys.filter((key) => /lane|line/.test(key.slice(held.base.length)))).toEqual([`${held.base}meta:lanes`])
}

test('a key that is held holds no other, in a queue without groups', async () => {
  await held.reset({ limits: [by('rpm', 'model', '1/s')] })
  for (const id of ['a1', 'a2', 'b1']) await add(id, { model: id[0] as string })
  await add('c1', {})
  for (const id of ['a3', 'b2']) await add(id, { model: id[0] as string })
  expect(await starts()).toEqual(['a1 0', 'b1 0', 'c1 0', 'a2 1', 'b2 1', 'a3 2'])
  await expectNothingLeft()
})

test('groups share a key by turns, and a group goes on with its next lane', async () => {
  await held.reset({ groups: {}, limits: [by('rpm', 'model', '1/s')] })
  for (let i = 1; i <= 4; i++) await add(`x${i}`, { model: 'a' }, { group: { id: 'x' } })
  for (let i = 1; i <= 2; i++) await add(`y${i}`, { model: 'a' }, { group: { id: 'y' } })
  await add('x5', { model: 'b' }, { group: { id: 'x' } })
  expect(await starts(3)).toEqual(['x1 0', 'x5 0', 'y1 1', 'x2 2', 'y2 3', 'x3 4', 'x4 5'])
  await expectNothingLeft()
})

test('lanes of a group take turns, whatever the group has waiting in each', async () => {
  await held.reset({ limits: [by('rpm', 'model', '100/s', { burst: 100 })] })
  for (let i = 1; i <= 3; i++) await add(`a${i}`, { model: 'a' })
  for (let i = 1; i <= 2; i++) await add(`b${i}`, { model: 'b' })
  expect(await starts(5)).toEqual(['a1 0', 'b1 0', 'a2 0', 'b2 0', 'a3 0'])
})

test('a composite key, and a job that lacks one of its names', async () => {
  await held.reset({ groups: {}, limits: [by('endpoint', ['group', 'host'], '1/s')] })
  for (const id of ['a1', 'a2']) await add(id, { host: 'h' }, { group: { id: 'a' } })
  for (const id of ['a3', 'a4']) await add(id, { host: 'i' }, { group: { id: 'a' } })
  for (const id of ['b1', 'b2']) await add(id, { host: 'h' }, { group: { id: 'b' } })
  for (const id of ['c1', 'c2']) await add(id, {}, { group: { id: 'c' } })
  const found = await starts(8)
  expect(found.filter((start) => start.endsWith(' 0')).toSorted()).toEqual(['a1 0', 'a3 0', 'b1 0', 'c1 0', 'c2 0'])
  expect(found.filter((start) => start.endsWith(' 1')).toSorted()).toEqual(['a2 1', 'a4 1', 'b2 1'])
  await expectNothingLeft()
})

test('values that look like others are others', async () => {
  await held.reset({ groups: {}, limits: [by('pair', ['host', 'model'], '1/s')] })
  const pairs = [
    ['a', 'b'],
    ['a1:b', ''],
    ['a:', 'b'],
    ['*', 'all'],
    ['all', '*'],
    ['1:a', '1:b'],
  ] as const
  for (const [i, [host, model]] of pairs.entries()) {
    for (const n of [0, 1]) await add(`j${i}-${n}`, { host, ...(model === '' ? {} : { model }) })
  }
  const found = await starts(20)
  expect(found.filter((start) => start.endsWith(' 0'))).toHaveLength(pairs.length + 1)
})

test('a more important job goes before the others of its group, in the lanes of both', async () => {
  await held.reset({ limits: [by('rpm', 'model', '1/s')] })
  const jobs = [
    { jobId: 'a1', priority: 5, keys: { model: 'a' } },
    { jobId: 'a2', keys: { model: 'a' } },
    { jobId: 'b1', priority: 3, keys: { model: 'b' } },
    { jobId: 'd1' },
  ]
  await held.queue.addBulk(jobs.map((opts) => ({ name: 'job', data: {}, opts })))
  expect(await starts(4)).toEqual(['a2 0', 'd1 0', 'b1 0', 'a1 1'])
  await expectNothingLeft()
})

test('jobs that waited before a limit had keys are sorted into lanes', async () => {
  await held.reset({ rate: '1000/s', groups: {} })
  for (let i = 0; i < 150; i++) await add(`a${i}`, { model: 'a' }, { group: { id: 'g' } })
  await add('b', { model: 'b' }, { group: { id: 'g' } })
  await add('plain', { model: 'b' })
  const limits = JSON.stringify([
    { by: ['model'], algorithm: 'gcra', mode: 'enforce', interval: 1e6, burst: 1, name: 'rpm', state: ':g:_' },
  ])
  await held.backend.store.run('override-shape', [JSON.stringify({ limits }), 'test', 'test', '', '', ''])
  const found = await starts(4)
  expect(found).toHaveLength(152)
  expect(found.slice(0, 4).map((start) => start.split(' ')[0])).toEqual(expect.arrayContaining(['a0', 'plain']))
  expect(found.findIndex((start) => start.startsWith('b '))).toBeLessThan(4)
  await expectNothingLeft()
})

test('a job is refused for its cost by limits that count it alone', async () => {
  await held.reset({ limits: [by('tpm', 'model', '10/min', { unit: 'tokens', burst: 10 })] })
  await held.depart(1)
  await add('free', {}, { costs: { tokens: 11 } })
  await expect(add('dear', { model: 'a' }, { costs: { tokens: 11 } })).rejects.toThrow(CostTooHighError)
})

test('two lanes that wait for other cells of one value do not let each other go for ever', async () => {
  await held.reset({
    groups: {},
    limits: [
      { name: 'tokens', by: 'host', unit: 'tokens', algorithm: 'fixed-window', rate: '2/s', align: 'first' },
      { name: 'requests', by: 'host', algorithm: 'sliding-window-log', rate: '3/s' },
      by('rpm', 'model', '2/s', { burst: 2 }),
    ],
  })
  const host = { host: 'i' }
  const both = { host: 'i', model: 'x' }
  const addTokens = (id: string, keys: Record<string, string>, tokens: number, more: ShapedJobsOptions = {}) =>
    add(id, keys, { costs: { tokens }, ...more })
  for (const [id, tokens] of Object.entries({ a: 0, b: 0, c: 1, d: 0 })) await addTokens(id, host, tokens)
  await addTokens('e', host, 2, { group: { id: 'e' } })
  await held.depart(1)
  await addTokens('f', both, 2, { priority: 2 })
  await addTokens('g', both, 0)
  await addTokens('h', host, 1, { group: { id: 'h' } })
  for (let calls = 0; ; calls++) {
    expect(calls).toBeLessThan(20)
    const { stop, nextUs } = await held.depart(3)
    if (stop === 'empty') break
    if (stop === 'closed') await held.advanceTo(Math.max(held.nowUs, nextUs as number))
  }
  await expectNothingLeft()
})

test('many groups on one key leave at its rate', async () => {
  await held.reset({ groups: {}, limits: [by('rpm', 'model', '100/s')] })
  const jobs = Array.from({ length: 1000 }, (_, i) => ({
    name: 'job',
    data: {},
    opts: { keys: { model: 'a' }, group: { id: `g${i}` } } as ShapedJobsOptions,
  }))
  await held.queue.addBulk(jobs)
  const found = await held.drain(10, 0)
  expect(found).toHaveLength(1000)
  expect(found.at(-1)?.slotUs).toBe(START_US + 9_990_000)
  await expectNothingLeft()
})

describe('a job that needs two contended keys', () => {
  const KINDS: Readonly<Record<string, Record<string, string>>> = {
    both: { model: 'a', host: 'h' },
    model: { model: 'a' },
    host: { host: 'h' },
  }

  /** How many of each kind leave in so many seconds, if each always has some waiting. */
  async function shares(limits: readonly QueueLimit[], seconds: number, lateMs: number) {
    await held.reset({ groups: {}, limits })
    const left: Record<string, number> = { both: 0, model: 0, host: 0 }
    let count = 0
    const addSome = (kind: string, jobs: number) =>
      held.queue.addBulk(
        Array.from({ length: jobs }, () => ({
          name: kind,
          data: {},
          opts: { jobId: `${kind}-${count++}`, group: { id: kind }, keys: KINDS[kind] } as ShapedJobsOptions,
        })),
      )
    await addSome('model', 5)
    await held.depart(4)
    await held.advanceTo(START_US + lateMs * 1000)
    for (const kind of ['both', 'host']) await addSome(kind, 5)
    while (held.nowUs <= START_US + seconds * 1_000_000) {
      const { grants, stop, nextUs } = await held.depart(4)
      for (const { id } of grants) {
        const kind = id.split('-')[0] as string
        left[kind] = (left[kind] as number) + 1
        await addSome(kind, 1)
      }
      if (stop === 'closed') await held.advanceTo(Math.max(held.nowUs, nextUs as number))
    }
    return left as { both: number; model: number; host: number }
  }

  test('gives the kept one back when it is removed', async () => {
    await held.reset({ groups: {}, limits: [by('one', 'model', '1/s'), by('other', 'host', '1/s')] })
    const leavesAt = async (ms: number) => {
      await held.advanceTo(START_US + ms * 1000)
      return (await held.depart(4)).grants.map(({ id }) => id)
    }
    await add('model0', { model: 'a' })
    expect(await leavesAt(0)).toEqual(['model0'])
    await add('host0', { host: 'h' })
    expect(await leavesAt(200)).toEqual(['host0'])
    // It waits for the host, while another job takes the next unit of the model.
    await add('both', { model: 'a', host: 'h' })
    expect(await leavesAt(300)).toEqual([])
    await add('host1', { host: 'h' })
    await add('model1', { model: 'a' })
    expect(await leavesAt(1000)).toEqual(['model1'])
    expect(await leavesAt(1200)).toEqual([])
    expect(await leavesAt(1400)).toEqual([])
    await (await held.queue.getJob('both'))?.remove()
    expect(await leavesAt(1400)).toEqual(['host1'])
    await expectNothingLeft()
  })

  test.each([
    ['in phase', '1/s', '1/s', 60, 0],
    ['out of phase', '1/s', '1/s', 60, 500],
    ['of which one is faster', '1/s', '10/s', 40, 50],
    ['of which one is slow', '20/s', '10/min', 60, 20],
  ])('has its share of both: %s', async (_, model, host, seconds, lateMs) => {
    const left = await shares([by('one', 'model', model), by('other', 'host', host)], seconds, lateMs)
    const rates = [model, host].map((rate) => (rate.endsWith('/s') ? 1 : 1 / 60) * Number.parseInt(rate, 10))
    // The share of both keys that is fair is half of the slower one.
    expect(left.both).toBeGreaterThanOrEqual((0.9 * (Math.min(...rates) * seconds)) / 2 - 1)
    expect(left.both + left.model).toBeGreaterThanOrEqual(0.9 * (rates[0] as number) * seconds - 1)
    expect(left.both + left.host).toBeGreaterThanOrEqual(0.9 * (rates[1] as number) * seconds - 1)
  })
})
