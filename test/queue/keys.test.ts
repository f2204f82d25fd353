import type { Job } from 'bullmq'
import { describe, expect, test } from 'vitest'
import { checkJobOptions } from '../../src/admission/job-options.ts'
import { InvalidGroupError, ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { lettersOf } from '../failures/support.ts'
import { ShardShop } from '../sharding/support/shop.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, jobs, Record, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const shards = new ShardShop(redis)

const KEYS = { model: 'gpt-large', host: 'api.example.com:8443', tier: 3 }
const STORED = { ...KEYS, tier: '3' }
const ONE = { name: 'one', data: {}, opts: { keys: KEYS } }

type Added = { readonly id?: string | undefined }
/** Adds jobs, and says which. */
type Way = (queue: ShapedQueue) => Promise<readonly Added[]>

const WAYS: readonly [string, Way][] = [
  ['add', async (queue) => [await queue.add('one', {}, { keys: KEYS })]],
  ['add to a group', async (queue) => [await queue.add('one', {}, { keys: KEYS, group: { id: 'a' } })]],
  ['add with a delay', async (queue) => [await queue.add('one', {}, { keys: KEYS, delay: 60_000 })]],
  ['addWhenFree', async (queue) => [await queue.addWhenFree('one', {}, { keys: KEYS })]],
  ['addBulk', (queue) => queue.addBulk([ONE, ONE])],
  ['a bulk in parts', (queue) => queue.addBulk(Array.from({ length: 120 }, () => ONE))],
  [
    'addOnce',
    async (queue) => (await queue.addOnce([ONE, ONE], { key: 'k', fingerprint: 'f' })).ids.map((id) => ({ id })),
  ],
  [
    'offer',
    async (queue) => {
      const offer = await queue.offer('one', {}, { keys: KEYS })
      return offer.accepted ? [offer.job] : []
    },
  ],
  ['a scheduler', async (queue) => [await queue.upsertJobScheduler('s', { every: 60_000 }, { opts: { keys: KEYS } })]],
]

describe('the keys of a job are stored as strings', () => {
  test.each(WAYS)('by %s', async (_way, add) => {
    const queue = shop.queue({ capacity: 1000, groups: {} })
    expect(await storedIn(queue, await add(queue))).toEqual([STORED])
  })

  test.each(WAYS)('as defaults, by %s, unless the job has its own', async (_way, add) => {
    const queue = shop.queue({ capacity: 1000, groups: {} }, { defaultJobOptions: { keys: { model: 7 } } })
    expect(await storedIn(queue, [await queue.add('plain', {})])).toEqual([{ model: '7' }])
    expect(await storedIn(queue, await add(queue))).toEqual([STORED])
  })

  test('by a flow, in its parent and children, and as defaults', async () => {
    const [parents, children] = [shop.queue({ capacity: 10 }), shop.queue({ capacity: 10 })]
    const producer = shop.keep(new ShapedFlowProducer(redis))
    const node = (queue: ShapedQueue, opts = {}) => ({ name: 'one', queueName: queue.name, opts })
    const own = { ...node(parents, { keys: KEYS }), children: [node(children, { keys: KEYS })] }
    for (const tree of [await producer.add(own), ...(await producer.addBulk([own]))]) {
      expect(await storedIn(parents, [tree.job])).toEqual([STORED])
      expect(await storedIn(children, tree.children?.map(({ job }) => job) ?? [])).toEqual([STORED])
    }
    const queuesOptions = { [parents.name]: { defaultJobOptions: { keys: KEYS } as object } }
    const { job } = await producer.add({ ...node(parents), children: [node(children)] }, { queuesOptions })
    expect(await storedIn(parents, [job])).toEqual([STORED])
  })

  test('in the shards of a queue', async () => {
    const queue = shards.queue('spread', { shards: 2, shape: { capacity: 100 } })
    const offer = await queue.offer('one', {}, { keys: KEYS })
    const { ids } = await queue.addOnce([ONE], { key: 'k', fingerprint: 'f' })
    const added = [await queue.add('one', {}, { keys: KEYS }), ...(await queue.addBulk([ONE, ONE, ONE]))]
    const found = [...added.map(({ id }) => id), ...ids, offer.accepted ? offer.job.id : undefined]
    for (const id of found) expect((await queue.getJob(id as string))?.opts).toMatchObject({ keys: STORED })
  })
})

describe('a processor gets them', () => {
  test('at each attempt, and at one by hand', async () => {
    const queue = shop.queue()
    const { seen, failed } = runs(queue, 2)
    const job = await queue.add('one', {}, { keys: KEYS, attempts: 2 })
    await failed.reach(2)
    await job.retry('failed', { resetAttemptsMade: true })
    await seen.reach(3)
    expect(seen.all).toEqual([STORED, STORED, STORED])
  })

  test('in every job of a scheduler, whose template has them', async () => {
    const queue = shop.queue()
    await queue.upsertJobScheduler('s', { every: 100 }, { opts: { keys: KEYS } })
    expect((await queue.getJobScheduler('s'))?.template?.opts).toMatchObject({ keys: STORED })
    const { seen } = runs(queue)
    await seen.reach(3)
    await queue.removeJobScheduler('s')
    expect(seen.all.slice(0, 3)).toEqual([STORED, STORED, STORED])
  })

  test('after a redrive, of a job that failed and of one that was dropped', async () => {
    const letters = lettersOf(shop)
    const queue = shop.queue({ capacity: 2, overflow: 'drop-oldest', overflowTo: letters.name })
    const failing = runs(queue, 1, { deadLetter: letters.name })
    await queue.add('fails', {}, { keys: KEYS })
    await failing.failed.reach(1)
    await failing.worker.close()
    await queue.add('dropped', {}, { keys: KEYS })
    await queue.addBulk(jobs(2))
    expect((await letters.all()).map(({ opts }) => opts)).toMatchObject([{ keys: STORED }, { keys: STORED }])
    await queue.drain()
    expect(await queue.redrive({ from: letters.name })).toMatchObject({ redriven: 2 })
    const { seen } = runs(queue)
    await seen.reach(2)
    expect(seen.all).toEqual([STORED, STORED])
  })
})

const VALUE = 'must be a finite number, or a string of 1 to 256 bytes'
const NAME = /a name in keys must be 1 to 64 letters, digits, '_', '\.' or '-', but not 'group' or 'queue'; got "/

test.each<[unknown, RegExp | string]>([
  [null, 'keys must be an object of names and values'],
  ['gpt-large', 'keys must be an object of names and values'],
  [['gpt-large'], 'keys must be an object of names and values'],
  [{ '': 'a' }, NAME],
  [{ 'a:b': 'a' }, NAME],
  [{ ['x'.repeat(65)]: 'a' }, NAME],
  [{ group: 'a' }, NAME],
  [{ queue: 'a' }, NAME],
  [{ model: '' }, `keys.model ${VALUE}; got ""`],
  [{ model: undefined }, `keys.model ${VALUE}; got undefined`],
  [{ model: null }, `keys.model ${VALUE}; got null`],
  [{ model: true }, `keys.model ${VALUE}; got true`],
  [{ model: ['a'] }, `keys.model ${VALUE}; got ["a"]`],
  [{ model: Number.NaN }, `keys.model ${VALUE}; got NaN`],
  [{ model: 7n }, `keys.model ${VALUE}; got the number 7: use String(7)`],
  [{ model: '\ud800' }, `keys.model ${VALUE}, well-formed in Unicode; got "\\ud800"`],
  [{ model: 'é'.repeat(129) }, `keys.model ${VALUE}; got "${'é'.repeat(40)}…", 258 bytes: use a hash of it`],
  [Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, 'a'])), 'keys must be at most 16; got 17'],
])('%o are refused', (keys, why) => {
  expect(() => checkJobOptions({ keys: keys as never })).toThrow(InvalidGroupError)
  expect(() => checkJobOptions({ keys: keys as never })).toThrow(why)
})

test('the longest, the most and the oddest keys are stored as they are', async () => {
  const names = [...'0123456789abcd'].map((one) => one.repeat(64))
  const keys = { ...Object.fromEntries(names.map((name) => [name, 'é'.repeat(128)])), '-_.': ':*~\u001f"', '1': ' ' }
  const queue = shop.queue({ capacity: 1 })
  expect(await storedIn(queue, [await queue.add('one', {}, { keys })])).toEqual([keys])
})

test('the keys that were given stay as they are', async () => {
  const given = { keys: { ...KEYS } }
  await shop.queue().add('one', {}, given)
  expect(given).toEqual({ keys: KEYS })
})

/** The different keys of jobs, as Redis has them. */
async function storedIn(queue: ShapedQueue, added: readonly Added[]): Promise<unknown[]> {
  const found = await Promise.all(added.map(({ id }) => queue.getJob(id as string)))
  const distinct = new Set(found.map((job) => JSON.stringify(keysOf(job as Job))))
  return [...distinct].map((text) => JSON.parse(text))
}

function keysOf(job: Job): unknown {
  return (job.opts as { readonly keys?: unknown }).keys
}

/** A worker that fails so many attempts first, and notes the keys of each. */
function runs(queue: ShapedQueue, fails = 0, options = {}) {
  const seen = new Record<unknown>()
  const process = async (job: Job) => {
    seen.add(keysOf(job))
    if (seen.all.length <= fails) throw new Error('no')
  }
  const worker = shop.worker(queue, process, { allowUnshaped: true, ...options })
  return { worker, seen, failed: eventsOf('failed', worker) }
}
