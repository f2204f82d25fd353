import { expect, test } from 'vitest'
import * as sluice from '../../src/index.ts'

const refusal = { retryAfterMs: 240, depth: 3, capacity: 3, paused: true }
const START = new Date('2030-01-01T00:00:10Z')
const EARLIER = new Date('2030-01-01T00:00:00Z')
const ERRORS: readonly [error: sluice.SluiceError, name: string, words: readonly string[], fields: object][] = [
  [new sluice.SluiceError('x'), 'SluiceError', ['x'], {}],
  [new sluice.InvalidInputError('x'), 'InvalidInputError', ['x'], {}],
  [new sluice.InvalidRateError('x'), 'InvalidRateError', ['x'], {}],
  [new sluice.InvalidShapeError('x'), 'InvalidShapeError', ['x'], {}],
  [new sluice.InvalidJobIdError('x'), 'InvalidJobIdError', ['x'], {}],
  [new sluice.InvalidCostError('x'), 'InvalidCostError', ['x'], {}],
  [new sluice.InvalidDeadlineError('x'), 'InvalidDeadlineError', ['x'], {}],
  [new sluice.InvalidGroupError('x'), 'InvalidGroupError', ['x'], {}],
  [
    new sluice.MissingKeyError('rpm', 'model'),
    'MissingKeyError',
    ['"rpm"', 'counts by model', 'give the job keys.model'],
    { limitName: 'rpm', key: 'model' },
  ],
  [
    new sluice.TooManyKeysError('mail', 'rpm', { model: 'm' }, 5),
    'TooManyKeysError',
    ['"rpm" of queue "mail"', '5 keys', '{"model":"m"}', 'raise maxKeys'],
    { queueName: 'mail', limitName: 'rpm', keys: { model: 'm' }, maxKeys: 5 },
  ],
  [
    new sluice.KeyInUseError('mail', 'sync', { account: 'a' }, '12'),
    'KeyInUseError',
    ['"sync" of queue "mail"', '{"account":"a"}', 'job 12 has not ended'],
    { queueName: 'mail', limitName: 'sync', keys: { account: 'a' }, jobId: '12' },
  ],
  [new sluice.NoGroupsError('mail'), 'NoGroupsError', ['"mail"', 'groups: {}'], { queueName: 'mail' }],
  [
    new sluice.PauseQueueError({ retryAfterMs: 5 }),
    'PauseQueueError',
    ['the downstream asked for a pause'],
    { retryAfterMs: 5, hard: false },
  ],
  [
    new sluice.ShardCountError('mail', 6, 1),
    'ShardCountError',
    ['"mail"', '6 shards', 'must be 6', 'got 1'],
    { queueName: 'mail', expected: 6, given: 1 },
  ],
  [
    new sluice.ShardsUnavailableError('mail', [0, 2], [1], { cause: new Error('away') }),
    'ShardsUnavailableError',
    ['"mail"', ': shards 0, 2 have the change, but shard 1 did not confirm it', 'away', 'repeat the call'],
    { queueName: 'mail', done: [0, 2], failed: [1], mayBeStored: true },
  ],
  [
    new sluice.ShardsUnavailableError('mail', [0], [1, 2], { cause: new Error('away') }),
    'ShardsUnavailableError',
    [': shard 0 has the change, but shards 1, 2 did not confirm it'],
    { done: [0], failed: [1, 2] },
  ],
  [
    new sluice.ShardsUnavailableError('mail', [], [1], { cause: new Error('away') }),
    'ShardsUnavailableError',
    [': no shard is known to have the change, but shard 1 did not confirm it'],
    { done: [], failed: [1] },
  ],
  [
    new sluice.MoveError('mail', 'paused', 'is paused'),
    'MoveError',
    ['queue "mail" is paused'],
    { queueName: 'mail', stop: 'paused' },
  ],
  [new sluice.UnsupportedOptionError('x'), 'UnsupportedOptionError', ['x'], {}],
  [new sluice.CostTooHighError(2, 1), 'CostTooHighError', ['2', '1', 'set burst'], { cost: 2, burst: 1 }],
  [
    new sluice.TooLargeError('mail', 5, 3),
    'TooLargeError',
    ['5', '"mail"', '3', 'smaller parts'],
    { queueName: 'mail', jobs: 5, capacity: 3 },
  ],
  [
    new sluice.TooLargeError('mail', 201, 200, { method: 'addOnce' }),
    'TooLargeError',
    ['201', 'one addOnce of queue "mail"', '200', 'smaller parts'],
    { queueName: 'mail', jobs: 201, capacity: 200 },
  ],
  [
    new sluice.IdempotencyConflictError('mail'),
    'IdempotencyConflictError',
    ['"mail"', 'another request', 'new key'],
    { queueName: 'mail' },
  ],
  [
    new sluice.IdempotencyInFlightError('mail', 100),
    'IdempotencyInFlightError',
    ['"mail"', 'in flight', '100 ms'],
    { queueName: 'mail', retryAfterMs: 100 },
  ],
  [
    new sluice.QueueFullError('mail', refusal),
    'QueueFullError',
    ['"mail"', '3 of 3', '240 ms'],
    { queueName: 'mail', ...refusal },
  ],
  [
    new sluice.GroupFullError('mail', 'acme', { ...refusal, needed: 2 }),
    'GroupFullError',
    ['"acme"', '"mail"', '3 of 3, 2 needed', '240 ms'],
    { queueName: 'mail', groupId: 'acme', ...refusal, needed: 2 },
  ],
  [
    new sluice.ScheduleClosedError('mail', { ...refusal, startsAt: START }, 'acme'),
    'ScheduleClosedError',
    ['group "acme" of queue "mail" is closed until', START.toISOString(), '240 ms'],
    { opensAt: START, groupId: 'acme' },
  ],
  [
    new sluice.CannotStartInTimeError('mail', { ...refusal, startsAt: START, maxWaitMs: 500 }),
    'CannotStartInTimeError',
    ['"mail"', START.toISOString(), 'may wait 500 ms'],
    { queueName: 'mail', ...refusal, startsAt: START, maxWaitMs: 500, mustStartBefore: undefined },
  ],
  [
    new sluice.CannotStartInTimeError('mail', {
      ...refusal,
      capacity: undefined,
      startsAt: START,
      mustStartBefore: EARLIER,
    }),
    'CannotStartInTimeError',
    [START.toISOString(), `its deadline is ${EARLIER.toISOString()}`],
    { capacity: undefined, maxWaitMs: undefined, mustStartBefore: EARLIER },
  ],
  [
    new sluice.QueueUnavailableError('mail', 'gone', true),
    'QueueUnavailableError',
    ['"mail"', 'gone', 'may have been stored'],
    { queueName: 'mail', mayBeStored: true },
  ],
  [
    new sluice.QueueUnavailableError('mail', 'gone', false),
    'QueueUnavailableError',
    ['nothing was stored'],
    { mayBeStored: false },
  ],
  [
    new sluice.NotReplicatedError('mail', { jobIds: ['7'], replicas: 2, acknowledged: 1, timeoutMs: 500 }),
    'NotReplicatedError',
    ['"mail"', 'accepted job 7', '1 of 2 replicas', '500 ms', 'it will run'],
    { queueName: 'mail', mayBeStored: true, jobIds: ['7'], replicas: 2, acknowledged: 1, timeoutMs: 500 },
  ],
  [
    new sluice.NotReplicatedError('mail', { jobIds: ['7', '8'], replicas: 1, acknowledged: 0, timeoutMs: 500 }),
    'NotReplicatedError',
    ['accepted 2 jobs', 'they will run'],
    {},
  ],
  [new sluice.NoShapeError('mail'), 'NoShapeError', ['"mail"', "shape: { rate: '50/s' }", 'allowUnshaped'], {}],
  [
    new sluice.UnsupportedVersionError('7.0.0', ['6.7.0'], ['x is missing']),
    'UnsupportedVersionError',
    ['7.0.0', '6.7.0', 'x is missing', 'Install'],
    { bullmqVersion: '7.0.0', testedVersions: ['6.7.0'] },
  ],
  [
    new sluice.CostTooHighError(5, 2, 'tokens'),
    'CostTooHighError',
    ['5', '"tokens"', '2'],
    { cost: 5, burst: 2, limitName: 'tokens' },
  ],
  [
    new sluice.CostTooHighError(5, 2, undefined, 'acme'),
    'CostTooHighError',
    ['5', '2', 'group "acme"'],
    { cost: 5, burst: 2, groupId: 'acme' },
  ],
  [new sluice.InvalidLimitError('x'), 'InvalidLimitError', ['x'], {}],
  [
    new sluice.LimitConflictError('api', 'given', 'stored'),
    'LimitConflictError',
    ['"api"', 'given', 'stored', 'version'],
    { limitName: 'api', given: 'given', stored: 'stored' },
  ],
  [
    new sluice.CloseTimeoutError('mail', 20_000),
    'CloseTimeoutError',
    ['mail', '20000 ms'],
    { queueName: 'mail', timeoutMs: 20_000 },
  ],
  [
    new sluice.UncertainClockError(200.4, 100),
    'UncertainClockError',
    ['200.4 ms', 'maxLatenessMs', '100'],
    { maxLatenessMs: 100 },
  ],
  [new sluice.ClusterPrefixError('app'), 'ClusterPrefixError', ["'{app}'", "'app'"], {}],
  [
    new sluice.RunTimeoutError('4711', 500),
    'RunTimeoutError',
    ['4711', 'runTimeoutMs', '500 ms'],
    { jobId: '4711', runTimeoutMs: 500 },
  ],
  [
    new sluice.WaitTimeoutError('mail', 500),
    'WaitTimeoutError',
    ['"mail"', '500 ms'],
    { queueName: 'mail', timeoutMs: 500 },
  ],
]

test.each(ERRORS)('$1', (error, name, words, fields) => {
  expect(error).toBeInstanceOf(Error)
  expect(error).toBeInstanceOf(sluice.SluiceError)
  expect(error).toBeInstanceOf((sluice as unknown as Record<string, new () => unknown>)[name] as new () => unknown)
  expect(error.name).toBe(name)
  for (const word of words) expect(error.message).toContain(word)
  expect(error).toMatchObject(fields)
  expect(String(error)).toBe(`${name}: ${error.message}`)
  expect(error.stack).toContain('errors.test.ts')
})

test('every error of the package is here', () => {
  const exported = Object.keys(sluice).filter((name) => name.endsWith('Error'))
  expect(exported.sort()).toEqual([...new Set(ERRORS.map(([, name]) => name))].sort())
})

test("a caller's mistakes are told from what may pass", () => {
  const mistakes = ERRORS.filter(([error]) => error instanceof sluice.InvalidInputError).map(([, name]) => name)
  expect(mistakes).toContain('CostTooHighError')
  expect(mistakes).toContain('TooLargeError')
  for (const name of ['QueueFullError', 'QueueUnavailableError', 'WaitTimeoutError'])
    expect(mistakes).not.toContain(name)
})

test('a cause is kept', () => {
  const cause = new Error('ECONNREFUSED')
  expect(new sluice.QueueUnavailableError('mail', 'gone', false, { cause }).cause).toBe(cause)
})
