import { Job } from 'bullmq'
import { describe, expect, onTestFinished, test } from 'vitest'
import * as http from '../packages/gateway/src/index.ts'
import * as sluice from '../src/index.ts'
import { Inspector } from '../src/inspect/index.ts'
import { combine, createLimiter } from '../src/limits/index.ts'
import { moveShardedQueue, ShardedQueue, ShardedWorker } from '../src/sharding/index.ts'
import { expectPaced, worstWindow } from '../src/testing/index.ts'
import { useRedis } from './support/redis.ts'

const redis = useRedis(import.meta.url)
const options = { connection: redis.connection, prefix: redis.prefix }

/** What programs without types may pass, by what would be right. */
const NO_OBJECT = [null, 5, 'x', true]
const NO_TEXT = [undefined, null, 5, true, {}, [], () => {}, Symbol('s')]
const NO_LIST = [undefined, null, 5, 'x', {}, [5], [null]]
const NO_COUNT = [null, -1, 1.5, Number.NaN, 'x', {}]
const NO_SIGNAL = [null, 5, 'x', {}, [], new AbortController()]
const NO_ID = NO_TEXT.filter((value) => value !== undefined)
const WHO = { by: 'ann', reason: 'test' }

// biome-ignore lint/suspicious/noExplicitAny: this is about programs without types
type Wrong = any
type Case = readonly [call: string, wrong: readonly unknown[], call: (value: Wrong) => unknown]

/** Closed unused: each call is refused before it needs a connection. */
const lazy = { ...options, connection: { ...redis.connection, lazyConnect: true } }
const inspector = new Inspector(lazy) as Wrong
const closed = async <T extends { close(): Promise<unknown> }>(made: T) => made.close()

const INSPECTOR: readonly Case[] = [
  [
    'constructor',
    [undefined, ...NO_OBJECT, {}, { connection: 'x' }, { ...lazy, prefix: 5 }, { ...lazy, nope: 1 }],
    (v) => closed(new Inspector(v)),
  ],
  ...[
    'shardsOf',
    'series',
    'history',
    'groups',
    'groupOverrides',
    'groupSettings',
    'limitSettings',
    'limitValues',
    'limitValue',
    'audit',
  ].map((call): Case => [call, NO_TEXT, (v) => inspector[call](v)]),
  ...['job', 'explain', 'group'].flatMap((call): Case[] => [
    [call, NO_TEXT, (v) => inspector[call](v, 'x')],
    [`${call}, id`, NO_TEXT, (v) => inspector[call]('q', v)],
  ]),
  ...['status', 'statuses', 'fullest'].map((call): Case => [call, NO_LIST, (v) => first(inspector[call](v, 1))]),
  ['queuesWithJob', NO_LIST, (v) => inspector.queuesWithJob(v, 'x')],
  ['queuesWithJob, id', NO_TEXT, (v) => inspector.queuesWithJob(['q'], v)],
  ['fullest, count', [undefined, ...NO_COUNT], (v) => inspector.fullest(['q'], v)],
  ['jobs', NO_TEXT, (v) => inspector.jobs(v, 'waiting')],
  ['jobs, state', [...NO_TEXT, 'nope'], (v) => inspector.jobs('q', v)],
  ['failedReasons', NO_TEXT, (v) => inspector.failedReasons(v)],
  ['failedJobs', NO_TEXT, (v) => inspector.failedJobs(v, { failedReason: 'x' })],
  ['failedJobs, failedReason', NO_TEXT, (v) => inspector.failedJobs('q', { failedReason: v })],
  ...(['jobs', 'failedJobs'] as const).flatMap((call) =>
    ['start', 'count'].map(
      (name): Case => [
        `${call}, ${name}`,
        NO_COUNT,
        (v) => inspector[call]('q', ...(call === 'jobs' ? ['waiting'] : []), { failedReason: 'x', [name]: v }),
      ],
    ),
  ),
  ...['history', 'groups'].map((call): Case => [`${call}, count`, NO_COUNT, (v) => inspector[call]('q', { count: v })]),
  ['limitValue, limit', NO_TEXT, (v) => inspector.limitValue('q', v, {})],
  ['limitValue, keys', [undefined, ...NO_OBJECT, { model: 5 }], (v) => inspector.limitValue('q', 'x', v)],
  ...['count', 'nope'].map(
    (name): Case => [`limitValue, ${name}`, NO_COUNT, (v) => inspector.limitValue('q', 'x', {}, { [name]: v })],
  ),
  ['group, count', NO_COUNT, (v) => inspector.group('q', 'x', { count: v })],
  ['job, logs', NO_COUNT, (v) => inspector.job('q', 'x', { logs: v })],
  ['series, since', [null, 5, 'x', {}, new Date(Number.NaN)], (v) => inspector.series('q', { since: v })],
  ['series, resolution', [null, 5, '2'], (v) => inspector.series('q', { resolution: v })],
  ...['series', 'history', 'groups'].map(
    (call): Case => [`${call}, options`, NO_OBJECT, (v) => inspector[call]('q', v)],
  ),
  ...['job', 'group'].map((call): Case => [`${call}, options`, NO_OBJECT, (v) => inspector[call]('q', 'x', v)]),
  ['jobs, options', NO_OBJECT, (v) => inspector.jobs('q', 'waiting', v)],
  ['failedJobs, options', [undefined, ...NO_OBJECT], (v) => inspector.failedJobs('q', v)],
]

const idle = { ...options, autorun: false }
const process = async () => {}
const { ShapedQueue, ShapedWorker, ShapedFlowProducer, ShapedQueueEvents } = sluice as Wrong
const NAMES = [...NO_TEXT, '', 'a:b']

const CONSTRUCTORS: readonly Case[] = [
  ['ShapedQueue, name', NAMES, (v) => closed(new ShapedQueue(v, options))],
  ['ShapedQueue, options', NO_OBJECT, (v) => closed(new ShapedQueue('q', v))],
  ['ShapedWorker, name', NAMES, (v) => closed(new ShapedWorker(v, process, idle))],
  ['ShapedWorker, processor', [5, true, {}, [], Symbol('s')], (v) => closed(new ShapedWorker('q', v, idle))],
  ['ShapedWorker, options', [undefined, ...NO_OBJECT, {}], (v) => closed(new ShapedWorker('q', process, v))],
  ['ShapedFlowProducer', [undefined, ...NO_OBJECT], (v) => closed(new ShapedFlowProducer(v))],
  ['ShapedQueueEvents, name', NAMES, (v) => closed(new ShapedQueueEvents(v, idle))],
  ['ShardedQueue, name', NAMES, (v) => closed(new ShardedQueue(v, { ...options, shards: 2 }))],
  ['moveShardedQueue, queues', [undefined, ...NO_OBJECT, {}], (v) => moveShardedQueue(v, v, WHO)],
  [
    'moveShardedQueue, options',
    [undefined, ...NO_OBJECT, {}, { ...WHO, timeoutMs: 'x' }, { ...WHO, nope: 1 }],
    (v) => moveShardedQueue({} as Wrong, {} as Wrong, v),
  ],
  ['ShardedQueue, options', [undefined, ...NO_OBJECT, {}], (v) => closed(new ShardedQueue('q', v))],
  [
    'ShardedWorker, name',
    NAMES,
    (v) => closed(new ShardedWorker(v, process, { ...options, shards: 2, concurrency: 2 })),
  ],
  ['ShardedWorker, options', [undefined, ...NO_OBJECT, {}], (v) => closed(new ShardedWorker('q', process, v))],
]

const CALLS: readonly Case[] = [
  ...(['parseRate', 'formatRate', 'intervalUs', 'sizeShape'] as const).map(
    (call): Case => [call, [undefined, null, 5, 'x', {}, []], (v) => (sluice as Wrong)[call](v)],
  ),
  ['safeShape', [undefined, null, 5, 'x', {}], sluice.safeShape],
  ['combine', NO_LIST, combine as Wrong],
  ['worstWindow', [undefined, null, 5, {}], (v) => worstWindow(v, { rate: '1/s' })],
  ['expectPaced, shape', [undefined, null, {}], (v) => expectPaced([], v)],
  ['inOrder', [undefined, null, 5, {}, [5]], http.inOrder as Wrong],
  ['problemResponse', [undefined, null, 5], http.problemResponse as Wrong],
  ['hashOfApiKey', NO_TEXT, http.hashOfApiKey],
  ['tokens', [undefined, ...NO_OBJECT, {}, { file: 5 }], http.tokens as Wrong],
]

function callsOf(queue: Wrong): readonly Case[] {
  const scheduler = (repeat: unknown, template?: unknown) => queue.upsertJobScheduler('s', repeat, template)
  return [
    [
      'addWhenFree, options',
      NO_OBJECT.filter((value) => typeof value !== 'string'),
      (v) => queue.addWhenFree('job', {}, v),
    ],
    ['addWhenFree, signal', NO_SIGNAL, (v) => queue.addWhenFree('job', {}, { signal: v })],
    ['addWhenFree, timeoutMs', [null, -1, 'x', Number.NaN], (v) => queue.addWhenFree('job', {}, { timeoutMs: v })],
    ['redrive', [undefined, ...NO_OBJECT, {}], (v) => queue.redrive(v)],
    ['redrive, signal', NO_SIGNAL, (v) => queue.redrive({ from: 'dead', signal: v })],
    ['upsertJobScheduler, id', [undefined, null, 5, '', {}], (v) => queue.upsertJobScheduler(v, { every: 1000 })],
    ['upsertJobScheduler, repeat', [undefined, ...NO_OBJECT, [], {}, { every: 5, pattern: '* * * * *' }], scheduler],
    ['upsertJobScheduler, every', [null, 'x', 0, -1, Number.NaN, {}], (v) => scheduler({ every: v })],
    ['upsertJobScheduler, pattern', [null, 5, '', {}], (v) => scheduler({ pattern: v })],
    ['upsertJobScheduler, job', NO_OBJECT, (v) => scheduler({ every: 1000 }, v)],
    ['rateLimit', [undefined, null, 'x', -1, {}], (v) => queue.rateLimit(v)],
    ['setShape', [undefined, ...NO_OBJECT], (v) => queue.setShape(v, WHO)],
    ['pauseUntil', [undefined, 'x', {}, new Date(Number.NaN)], (v) => queue.pauseUntil(v, WHO)],
    ['setGroup, id', NO_ID, (v) => queue.setGroup(v, { weight: 2 }, WHO)],
    ['setLimit, name', NO_TEXT, (v) => queue.setLimit(v, 'a', { rate: '1/s' }, WHO)],
    ['pauseGroup, id', NO_TEXT, (v) => queue.pauseGroup(v, WHO)],
  ]
}

/** The first value of a generator, or a promise. */
async function first(found: AsyncGenerator | Promise<unknown>): Promise<unknown> {
  return Symbol.asyncIterator in found ? found.next() : found
}

/** Of what was passed, what was taken, or refused by an error that has no type or says not what came. */
async function mistaken([, wrong, call]: Case): Promise<string[]> {
  const found: string[] = []
  for (const value of wrong) {
    const shown = typeof value === 'symbol' ? 'a symbol' : (JSON.stringify(value) ?? String(value))
    try {
      await call(value)
      found.push(`${shown} was taken`)
    } catch (error) {
      if (!(error instanceof sluice.SluiceError)) found.push(`${shown}: ${error}`)
    }
  }
  return found
}

describe('wrong arguments are refused by an error of Sluice, before anything is done', () => {
  for (const one of [...CONSTRUCTORS, ...CALLS]) {
    test(one[0], async () => expect(await mistaken(one)).toEqual([]))
  }

  for (const one of INSPECTOR) {
    test(`Inspector: ${one[0]}`, async () => expect(await mistaken(one)).toEqual([]))
  }

  test('every call of Inspector that takes an argument is among them', async () => {
    const asked = new Set(INSPECTOR.map(([call]) => call.split(',')[0]))
    const calls = Object.getOwnPropertyNames(Inspector.prototype)
    expect(calls.filter((call) => !asked.has(call))).toEqual(['queues', 'redisState', 'close'])
    await inspector.close()
  })

  test('calls of a queue', async () => {
    const queue = new ShapedQueue('q', { ...options, shape: { rate: '100/s', groups: {} } })
    await queue.waitUntilReady()
    const found: string[] = []
    for (const one of callsOf(queue)) found.push(...(await mistaken(one)).map((text) => `${one[0]}: ${text}`))
    expect(found).toEqual([])
    expect(await queue.count()).toBe(0)
    await queue.close()
  })

  test.each<[string, (given: Wrong) => unknown]>([
    ['ShapedQueue', (given) => new ShapedQueue('q', given)],
    ['ShapedWorker', (given) => new ShapedWorker('q', process, given)],
    ['ShapedFlowProducer', (given) => new ShapedFlowProducer(given)],
    ['Inspector', (given) => new Inspector(given)],
    ['Inspector, connection', (connection) => new Inspector({ connection })],
    ['ShardedQueue', (given) => new ShardedQueue('q', given)],
    ['createLimiter', (given) => createLimiter(given, { name: 'a', rate: '1/s' })],
    ['ModeSwitch', (given) => new http.ModeSwitch(given)],
  ])('%s: no password is in the error', (_, make) => {
    const url = 'redis://ann:CANARY@127.0.0.1:1'
    expect(() => make(url)).toThrow(sluice.SluiceError)
    expect(() => make(url)).not.toThrow(/CANARY/)
  })

  test('ShapedWorker: nor is that of options where { connection } was meant', () => {
    const given = { host: '127.0.0.1', password: 'CANARY' } as Wrong
    expect(() => new ShapedWorker('q', process, given)).toThrow(/got the options host, password$/)
  })

  test('a MULTI to add a job with: nothing is queued', async () => {
    const queue = new sluice.ShapedQueue('multi', { connection: redis.connection, prefix: redis.prefix })
    onTestFinished(() => queue.close())
    const multi = redis.client().multi()
    const adding = new Job(queue, 'job', {}, {}, 'a').addJob(multi as never)
    await expect(adding).rejects.toThrow(sluice.InvalidInputError)
    // The MULTI itself.
    expect(multi.length).toBe(1)
  })

  test('the signal of a wait for a limit', async () => {
    const limiter = createLimiter(redis.client(), { name: 'api', prefix: redis.prefix, rate: '1/s' })
    const wait: Case = ['wait', NO_SIGNAL, (v) => limiter.wait('k', { signal: v })]
    expect(await mistaken(wait)).toEqual([])
  })
})
