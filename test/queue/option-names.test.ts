import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { checkOptionNames } from '../../src/admission/option-names.ts'
import {
  InvalidInputError,
  ShapedFlowProducer,
  ShapedQueue,
  ShapedWorker,
  UnsupportedOptionError,
} from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'

// What plain JavaScript can write: no compiler says that an option is unknown.

const redis = useRedis(import.meta.url)
const base = { connection: redis.connection, prefix: redis.prefix }
type Options = Record<string, unknown>

const MAKE: Readonly<Record<string, (options: Options) => { close(): Promise<unknown> }>> = {
  queue: (options) => new ShapedQueue('q', { ...base, ...options }),
  worker: (options) => new ShapedWorker('q', null, { ...base, ...options }),
  'flow producer': (options) => new ShapedFlowProducer({ ...base, ...options }),
}
const SHAPED = ['queue', 'worker']
const ALL = Object.keys(MAKE)

const PRO: readonly [string[], Options, RegExp][] = [
  [ALL, { group: { concurrency: 1 } }, /'group' belongs to BullMQ Pro.*shape\.groups/],
  [
    ['queue', 'flow producer'],
    { batch: { size: 10 } },
    /'batch' belongs to BullMQ Pro.*; it is an option of the worker/,
  ],
  [ALL, { batches: { size: 10 } }, /'batches' belongs to BullMQ Pro.*; the worker's option is batch/],
  [['worker'], { ttl: 1000 }, /'ttl' belongs to BullMQ Pro/],
]
const NEAR: readonly [string[], Options, RegExp][] = [
  [SHAPED, { rate: '5/s' }, /did you mean shape: \{ rate \}\?/],
  [SHAPED, { burst: 5 }, /did you mean shape: \{ burst/],
  [SHAPED, { capacity: 5 }, /did you mean shape: \{ capacity/],
  [SHAPED, { limits: [] }, /did you mean shape: \{ limits/],
  [SHAPED, { onStateLoss: 'hold' }, /did you mean shape: \{ onStateLoss/],
  [['queue'], { concurrency: 5 }, /did you mean shape: \{ concurrency/],
  [SHAPED, { shapes: { rate: '5/s' } }, /no (queue|worker) option 'shapes': did you mean 'shape'/],
  [SHAPED, { Shape: {} }, /did you mean 'shape'/],
  [SHAPED, { shpae: { rate: '5/s' } }, /did you mean 'shape'/],
  [SHAPED, { shap: { rate: '5/s' } }, /did you mean 'shape'/],
  [['worker'], { concurency: 5 }, /no worker option 'concurency': did you mean 'concurrency'\?/],
  [['queue'], { concurency: 5 }, /did you mean shape: \{ concurrency \}\?/],
  [SHAPED, { rates: '5/s' }, /did you mean shape: \{ rate \}\?/],
  [SHAPED, { max_wait: 5 }, /did you mean shape: \{ maxWaitMs \}\?/],
  [SHAPED, { capcity: 5 }, /did you mean shape: \{ capacity \}\?/],
  [SHAPED, { shape: { rates: '5/s' } }, /shape has no field 'rates'; it has .* \(did you mean 'rate'\?\)/],
  [SHAPED, { shape: { rat: '5/s' } }, /shape has no field 'rat'; it has .* \(did you mean 'rate'\?\)/],
  [
    SHAPED,
    { shape: { groups: { weights: 2 } } },
    /shape\.groups has no field 'weights'; it has .* \(did you mean 'weight'\?\)/,
  ],
  [
    SHAPED,
    { shape: { limits: [{ name: 'a', rates: '5/s' }] } },
    /has no field 'rates'; it has name, .* \(did you mean 'rate'\?\)/,
  ],
  [SHAPED, { shape: { limits: [{ name: 'a', share: true }] } }, /'share'; it has name, .*shared/],
  [SHAPED, { shape: { group: {} } }, /shape has no field 'group'/],
  [SHAPED, { shape: { groups: { maxSize: 5 } } }, /shape\.groups has no field 'maxSize'; it has rate, burst/],
  [
    SHAPED,
    { shape: { groups: { share: 2 } } },
    /groups\.share must be \{ ofFree: a number from 0\.001 to 1000 \}; got 2/,
  ],
  [SHAPED, { shape: { groups: { share: { ofFree: 0 } } } }, /groups\.share must be .*; got \{"ofFree":0\}/],
  [SHAPED, { shape: { groups: { share: { offree: 1 } } } }, /groups\.share must be .*; got \{"offree":1\}/],
  [['flow producer'], { shape: {} }, /did you mean a shape of each queue/],
  [['flow producer'], { rate: '5/s' }, /option 'rate': did you mean a shape of each queue/],
  [ALL, { admitTimeout: 5 }, /did you mean 'admitTimeoutMs'/],
  [['worker'], { maxLoopUtilization: 0.9 }, /did you mean 'maxLoopUtilisation'/],
  [['worker'], { deadLetters: 'dead' }, /did you mean 'deadLetter'/],
  [['worker'], { allow_unshaped: true }, /did you mean 'allowUnshaped'/],
  [['worker'], { give_up_after_ms: 5 }, /did you mean 'giveUpAfterMs'/],
  [
    ['worker'],
    { adapt: { decrese: 0.5 } },
    /adapt has no option 'decrese'; it has decrease, increase, quietMs, floor.* \(did you mean 'decrease'\?\)/,
  ],
  [['worker'], { report: 'no' }, /report must be true or false; got "no"/],
  [['worker'], { allowUnshaped: 1 }, /allowUnshaped must be true or false; got 1/],
  [['worker'], { maxLoopUtilisation: '0.5' }, /maxLoopUtilisation must be a share/],
  [['worker'], { removeOnFail: true }, /removeOnFail must be an object, such as { count: 1000 }/],
]

test.each([
  ...PRO.map((row) => [UnsupportedOptionError, ...row] as const),
  ...NEAR.map((row) => [InvalidInputError, ...row] as const),
])('%O of %j: %j is refused by name', (error, kinds, options, message) => {
  for (const kind of kinds) {
    const make = () => MAKE[kind]?.(options)
    expect(make).toThrow(error)
    expect(make).toThrow(message)
  }
})

test.each<[Options, RegExp]>([
  [{ group: 'a' }, /group must be \{ id, priority \}; got "a"/],
  [{ group: { id: '' } }, /the id of a group must be a string of 1 to 256 bytes; got ""/],
  [{ group: { id: 'a', maxSize: 5 } }, /group has no field 'maxSize'.*capacity of the shape's groups/],
  [{ group: { id: 42 } }, /got the number 42: use String\(42\)/],
  [{ group: { id: 'é'.repeat(129) } }, /got "é{40}…", 258 bytes: use a hash of it/],
  [{ keys: { 'a:b': 'x' } }, /a name in keys must be .*; got "a:b"/],
  [{ Keys: { a: 'x' } }, /no job option 'Keys': did you mean 'keys'/],
  [{ group: 'tenant-42' }, /group must be \{ id, priority \}; got "tenant-42"/],
  [{ group: { id: 'a', priority: 1.5 } }, /group\.priority must be a whole number from 0 to 2097152; got 1\.5/],
  [{ group: { id: 'a' }, priority: 1 }, /group\.priority instead of priority/],
  [{ group: { id: 'a' }, lifo: true }, /cannot be lifo/],
  [{ Cost: 2 }, /no job option 'Cost': did you mean 'cost'/],
  [{ mustStartbefore: 1 }, /did you mean 'mustStartBefore'/],
  [{ must_start_before: 1 }, /did you mean 'mustStartBefore'/],
])('a job with %j is refused on every way in, and nothing is added', async (opts, message) => {
  const queue = new ShapedQueue('jobs', { ...base, shape: { capacity: 10 } })
  onTestFinished(() => queue.close())
  const flows = new ShapedFlowProducer(base)
  onTestFinished(() => flows.close())
  const job = { name: 'job', data: {}, opts }
  const node = { ...job, queueName: 'jobs' }
  const queuesOptions = { jobs: { defaultJobOptions: opts } }
  const ways = [
    () => queue.add('job', {}, opts),
    () => queue.offer('job', {}, opts),
    () => queue.addWhenFree('job', {}, opts),
    () => queue.addBulk([{ ...job, opts: {} }, job]),
    () => queue.addOnce([job], { key: 'k', fingerprint: 'f' }),
    () => queue.upsertJobScheduler('s', { every: 60_000 }, { opts }),
    () => flows.add(node),
    () => flows.add({ ...node, opts: {}, children: [node] }),
    () => flows.addBulk([node]),
    () => flows.add({ ...node, opts: {} }, { queuesOptions }),
  ]
  for (const way of ways) await expect(way()).rejects.toThrow(message)
  expect(() => new ShapedQueue('jobs', { ...base, defaultJobOptions: opts })).toThrow(message)
  expect(await queue.count()).toBe(0)
})

const who = { by: 'me', reason: 'why' }
const letters = { from: 'dead' }
const once = { key: 'k', fingerprint: 'f' }

test.each<[string, (queue: ShapedQueue) => Promise<unknown>, RegExp]>([
  [
    'setShape',
    (queue) => queue.setShape({ rate: '5/s' }, { ...who, ttl: 5 } as never),
    /no option 'ttl'; it has .* \(did you mean 'ttlMs'\?\)/,
  ],
  ['setShape', (queue) => queue.setShape({ rate: '5/s' }, 'me' as never), /takes an object.*got "me"/],
  [
    'clearShape',
    (queue) => queue.clearShape({ fields: ['rates' as never], ...who }),
    /'rates' can be set or cleared; rate, /,
  ],
  ['clearShape', (queue) => queue.clearShape({ fields: ['horizonMs'], ...who }), /'horizonMs' can be set/],
  ['clearShape', (queue) => queue.clearShape({ why: 'x' } as never), /no option 'why'; it has fields, by, reason/],
  ['pause', (queue) => queue.pause({ who: 'me' } as never), /pause has no option 'who'/],
  ['resume', (queue) => queue.resume({ who: 'me' } as never), /resume has no option 'who'/],
  [
    'clearShape',
    (queue) => queue.clearShape('rate' as never),
    /takes an object of options, of fields, by, reason; got "rate"/,
  ],
  [
    'clearShape',
    (queue) => queue.clearShape({ fields: [], ...who }),
    /fields must be a list of at least one.*got \[\]/,
  ],
  ['clearShape', (queue) => queue.clearShape({ fields: 'rate', ...who } as never), /fields must be a list.*got "rate"/],
  ['pauseUntil', (queue) => queue.pauseUntil(Date.now() + 60_000, 'why' as never), /takes an object.*got "why"/],
  ['pauseUntil', (queue) => queue.pauseUntil(Date.now() + 60_000, { by: 'me' } as never), /needs \{ reason \}/],
  ['clearPause', (queue) => queue.clearPause('me' as never), /takes an object.*got "me"/],
  [
    'addWhenFree',
    (queue) => queue.addWhenFree('x', {}, { timeout: 5 } as never),
    /'timeout': did you mean 'timeoutMs'/,
  ],
  ['addWhenFree', (queue) => queue.addWhenFree('x', {}, { timeoutMs: '5' } as never), /timeoutMs must be a number/],
  ['redrive', (queue) => queue.redrive({ ...letters, filters: () => true } as never), /no option 'filters'/],
  ['redrive', (queue) => queue.redrive({ ...letters, filter: 'poison' } as never), /filter must be a function/],
  ['redrive', (queue) => queue.redrive(undefined as never), /takes an object/],
  ['addOnce', (queue) => queue.addOnce([{ name: 'x', data: {} }], { ...once, ttl: 5 } as never), /no option 'ttl'/],
])('%s refuses what it would ignore, and changes nothing: %s', async (_, call, message) => {
  const queue = new ShapedQueue('calls', { ...base, shape: { rate: '10/s' } })
  onTestFinished(() => queue.close())
  const before = await queue.getShape()
  const refusal = await call(queue).catch((error: unknown) => error)
  expect(refusal).toBeInstanceOf(InvalidInputError)
  expect(String(refusal)).toMatch(message)
  expect(await queue.getShape()).toEqual(before)
  expect([await queue.count(), await queue.isPaused()]).toEqual([0, false])
})

test('a worker without options is told what it needs', () => {
  expect(() => new ShapedWorker('q', null, undefined as never)).toThrow(InvalidInputError)
})

test('every option that BullMQ has passes', async () => {
  const folder = dirname(createRequire(import.meta.url).resolve('bullmq/package.json'))
  const files = [
    'interfaces/queue-options',
    'interfaces/worker-options',
    'interfaces/base-job-options',
    'types/job-options',
  ]
  for (const file of files) {
    const text = readFileSync(join(folder, 'dist', 'esm', `${file}.d.ts`), 'utf8')
    const names = [...text.matchAll(/^ {4}(\w+)\??:/gm)].map(([, name]) => name as string)
    expect(names.length).toBeGreaterThan(3)
    const given = Object.fromEntries(names.map((name) => [name, 1]))
    for (const kind of ['queue', 'worker', 'flow producer', 'job', 'wait'] as const) {
      const { concurrency, ...rest } = given
      expect(() => checkOptionNames(kind, kind === 'worker' ? given : rest)).not.toThrow()
    }
  }
})

test('what is none of ours is left to BullMQ, and what is undefined is not given', async () => {
  const queue = new ShapedQueue('others', { ...base, group: undefined, somethingNew: 1 } as object as typeof base)
  onTestFinished(() => queue.close())
  const job = await queue.add('job', {}, { group: undefined, host: 'a', mode: 'b', cost: 2 } as object)
  expect((await queue.getJob(job.id as string))?.opts).toMatchObject({ host: 'a', mode: 'b', cost: 2 })
  const both = { ...base, allowUnshaped: true, shape: { rate: '5/s' }, admitTimeoutMs: 500 } as const
  for (const kind of ['queue', 'worker']) await MAKE[kind]?.(both).close()
})
