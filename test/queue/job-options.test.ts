import { expect, test } from 'vitest'
import {
  checkJobDefaults,
  checkJobList,
  checkJobName,
  checkJobOptions,
  checkPriority,
  MAX_COST,
} from '../../src/admission/job-options.ts'
import { InvalidInputError, type ShapedJobsOptions, SluiceError } from '../../src/index.ts'

const DAY = new Date('2026-01-01')
const GROUP = { id: 'a' }

test.each<[ShapedJobsOptions | null | undefined]>([
  [undefined],
  [null],
  [{}],
  [{ cost: 0.001 }],
  [{ cost: MAX_COST, costs: { tokens: 0, calls: MAX_COST } }],
  [{ runTimeoutMs: 1 }],
  [{ runTimeoutMs: 2_147_483_647 }],
  [{ group: { ...GROUP, priority: 0 } }],
  [{ group: { id: 'é'.repeat(128), priority: 2_097_152 }, priority: 0, lifo: false }],
  [{ group: GROUP, tier: 'x'.repeat(64) }],
  [{ deduplication: { id: 'a', ttl: 0 } }],
  [{ deduplication: { id: 7 as never } }],
  [{ deduplication: null as never }],
  [{ jobId: '', delay: 0, attempts: 3, timestamp: 5, priority: 1 }],
  [{ jobId: 'repeat:a:1', delay: '5' as never, backoff: { type: 'fixed', delay: 5 }, parent: null as never }],
  [{ mustStartBefore: 1_767_225_600_000 }],
])('%j is taken as it is', (options) => {
  expect(checkJobOptions(options as ShapedJobsOptions)).toEqual(options)
})

test('a date and a part of a ms are stored as whole ms', () => {
  expect(checkJobOptions({ mustStartBefore: DAY, cost: 2 })).toEqual({ mustStartBefore: DAY.getTime(), cost: 2 })
  expect(checkJobOptions({ mustStartBefore: 5.9 })).toEqual({ mustStartBefore: 5 })
})

test('what is stored is another object: the one that was given stays as it is', () => {
  const given = { keys: { tier: 3 }, mustStartBefore: DAY }
  expect(checkJobOptions(given)).toEqual({ keys: { tier: '3' }, mustStartBefore: DAY.getTime() })
  expect(given).toEqual({ keys: { tier: 3 }, mustStartBefore: DAY })
})

const COST = `must be a number > 0 and at most ${MAX_COST}; got`
const RUN_TIMEOUT = 'runTimeoutMs must be a whole number from 1 to 2147483647; got'
const PRIORITY = 'group.priority must be a whole number from 0 to 2097152; got'
const FINITE = 'must be a finite number; got'
const DEDUPLICATION = 'deduplication.id must be a string that is not empty, well-formed in Unicode; got'

test.each<[unknown, string]>([
  [5, 'the options of a job are an object; got 5'],
  ['x', 'the options of a job are an object; got "x"'],
  [{ cost: MAX_COST + 1 }, `cost ${COST} 1000000001`],
  [{ costs: [1] }, 'costs must be an object of units and numbers; got [1]'],
  [{ costs: null }, 'costs must be an object of units and numbers; got null'],
  [{ costs: 5 }, 'costs must be an object of units and numbers; got 5'],
  [{ costs: { tokens: -0.1 } }, `costs.tokens must be a number from 0 to ${MAX_COST}; got -0.1`],
  [{ costs: { tokens: MAX_COST + 1 } }, `costs.tokens must be a number from 0 to ${MAX_COST}; got`],
  [{ costs: { tokens: '5' } }, `costs.tokens must be a number from 0 to ${MAX_COST}; got "5"`],
  [{ runTimeoutMs: 0 }, `${RUN_TIMEOUT} 0`],
  [{ runTimeoutMs: 2_147_483_648 }, `${RUN_TIMEOUT} 2147483648`],
  [{ runTimeoutMs: 1.5 }, `${RUN_TIMEOUT} 1.5`],
  [{ group: 'a' }, 'group must be { id, priority }; got "a"'],
  [{ group: null }, 'group must be { id, priority }; got null'],
  [{ group: { id: 'a', size: 1 } }, "group has no field 'size'; it has id, priority"],
  [{ group: { id: 'a', maxSize: 1 } }, "BullMQ Pro's maxSize is the capacity of the shape's groups"],
  [{ group: { id: '' } }, 'the id of a group must be a string of 1 to 256 bytes; got ""'],
  [{ group: { id: `${'é'.repeat(128)}a` } }, '257 bytes: use a hash of it'],
  [{ group: { ...GROUP, priority: -1 } }, `${PRIORITY} -1`],
  [{ group: { ...GROUP, priority: 2_097_153 } }, `${PRIORITY} 2097153`],
  [{ group: { ...GROUP, priority: null } }, `${PRIORITY} null`],
  [{ group: GROUP, priority: 1 }, 'a job of a group has group.priority instead of priority'],
  [{ group: GROUP, lifo: true }, 'a job of a group cannot be lifo; use group.priority'],
  [{ tier: '' }, 'the tier of a job must be a name of'],
  [{ tier: 'x'.repeat(65) }, 'the tier of a job must be a name of'],
  [{ deduplication: {} }, `${DEDUPLICATION} undefined`],
  [{ deduplication: { id: '' } }, `${DEDUPLICATION} ""`],
  [{ deduplication: { id: '\ud800' } }, DEDUPLICATION],
  [{ deduplication: { id: 'a', ttl: -1 } }, 'deduplication.ttl must be a whole number of ms; got -1'],
  [{ deduplication: { id: 'a', ttl: 1.5 } }, 'deduplication.ttl must be a whole number of ms; got 1.5'],
  [{ delay: Number.NaN }, `the job option 'delay' ${FINITE} NaN`],
  [{ stackTraceLimit: Number.POSITIVE_INFINITY }, `the job option 'stackTraceLimit' ${FINITE} Infinity`],
  [{ attempts: true }, `the job option 'attempts' ${FINITE} true`],
  [{ priority: {} }, `the job option 'priority' ${FINITE} {}`],
  [{ timestamp: DAY }, `the job option 'timestamp' ${FINITE}`],
  [{ failParentOnFailure: DAY }, `the job option 'failParentOnFailure' ${FINITE}`],
  [{ backoff: { delay: Number.NaN } }, `the job option 'backoff.delay' ${FINITE} NaN`],
])('%j is refused', (options, why) => {
  expect(() => checkJobDefaults(options as never)).toThrow(SluiceError)
  expect(() => checkJobDefaults(options as never)).toThrow(why)
  expect(() => checkJobOptions(options as never)).toThrow(why)
})

test.each<[unknown, string]>([
  [{ jobId: 5 }, 'job id must be a string, well-formed in Unicode; got 5'],
  [{ jobId: '\ud800' }, 'job id must be a string, well-formed in Unicode; got'],
  [{ jobId: 'a:b' }, "job id 'a:b' must not contain ':'"],
  [{ jobId: 'x:repeat:a' }, "job id 'x:repeat:a' must not contain ':'"],
  [{ mustStartBefore: 'soon' }, 'mustStartBefore must be a valid Date, or ms since 1970; got "soon"'],
  [{ mustStartBefore: Number.NaN }, 'mustStartBefore must be a valid Date, or ms since 1970; got NaN'],
  [
    { mustStartBefore: new Date(Number.NaN) },
    'mustStartBefore must be a valid Date, or ms since 1970; got Invalid Date',
  ],
])('%j of a job is refused', (options, why) => {
  expect(() => checkJobOptions(options as never)).toThrow(why)
})

test('a name is a string, or a number as in BullMQ', () => {
  for (const name of ['', 'a', 5]) expect(() => checkJobName(name)).not.toThrow()
  for (const name of [undefined, null, {}, true, 5n]) expect(() => checkJobName(name)).toThrow(InvalidInputError)
})

test('a list of jobs is an array of objects with names', () => {
  expect(() => checkJobList('addBulk', [])).not.toThrow()
  expect(() => checkJobList('addBulk', [{ name: 'a' }])).not.toThrow()
  expect(() => checkJobList('addBulk', { length: 0 })).toThrow('addBulk takes an array of jobs; got {"length":0}')
  for (const job of [null, 5, 'a']) {
    expect(() => checkJobList('addBulk', [{ name: 'a' }, job])).toThrow(
      'addBulk takes jobs such as { name, data, opts }',
    )
  }
  expect(() => checkJobList('addBulk', [{ name: 'a' }, {}])).toThrow(
    'the name of a job must be a string; got undefined',
  )
})

test('a priority is what BullMQ has room for', () => {
  for (const priority of [0, 2_097_152]) expect(() => checkPriority(priority)).not.toThrow()
  for (const priority of [-1, 0.5, 2_097_153, '1', undefined]) {
    expect(() => checkPriority(priority)).toThrow('priority must be a whole number from 0 to 2097152')
  }
})
