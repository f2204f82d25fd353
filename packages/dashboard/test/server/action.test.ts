import { ProblemError } from 'sluice-gateway/internal'
import { expect, test } from 'vitest'
import { readAction } from '../../src/action.ts'

const reason = 'incident 4711'

test.each([
  { action: 'setShape', shape: { rate: '5/s' }, reason },
  { action: 'setShape', shape: { rate: null }, ttlMs: 1000, reason },
  { action: 'clearShape', reason },
  { action: 'clearShape', fields: ['rate', 'burst'], reason },
  { action: 'pause', reason },
  { action: 'pause', ttlMs: 60_000, reason },
  { action: 'resume', reason },
  { action: 'setGroup', group: 'acme', settings: { rate: '5/s', weight: 2, capacity: null }, ttlMs: 60_000, reason },
  { action: 'clearGroup', group: 'acme', reason },
  { action: 'clearGroup', group: 'acme', fields: ['rate', 'weight'], reason },
  { action: 'pauseGroup', group: 'acme', ttlMs: 60_000, reason },
  { action: 'resumeGroup', group: 'acme', reason },
  { action: 'setMode', mode: 'shadow', reason },
  { action: 'redrive', from: 'emails-dead', reason },
  { action: 'dropDeadLetter', from: 'emails-dead', letterId: '0b1f', reason },
  { action: 'dropDeadLetters', from: 'emails-dead', failedReason: 'no user', reason },
  { action: 'retryJob', jobId: '4711', reason },
  { action: 'removeJob', jobId: '4711', reason },
  { action: 'promoteJob', jobId: '4711', reason },
  { action: 'cancelJob', jobId: '4711', reason },
])('%j is an action', (body) => {
  expect(readAction(body)).toEqual(body)
})

test('a reason is told without the space around it', () => {
  expect(readAction({ action: 'resume', reason: ' over ' })).toEqual({ action: 'resume', reason: 'over' })
})

test.each<[unknown, RegExp]>([
  [undefined, /the body/],
  ['resume', /the body/],
  [[], /the body/],
  [{ reason }, /action/],
  [{ action: 'obliterate', reason }, /action/],
  [{ action: 'resume' }, /reason: expected why/],
  [{ action: 'resume', reason: '' }, /reason: expected why/],
  [{ action: 'resume', reason: '  ' }, /reason: expected why/],
  [{ action: 'resume', reason: 'x'.repeat(501) }, /reason: expected at most 500/],
  [{ action: 'resume', reason: 'a\nb' }, /reason: expected no control characters/],
  [{ action: 'resume', reason: 5 }, /reason: expected why/],
  [{ action: 'resume', reason, by: 'root' }, /by/],
  [{ action: 'setShape', reason }, /shape/],
  [{ action: 'setShape', shape: 'fast', reason }, /shape/],
  [{ action: 'setShape', shape: { rate: '5/s' }, ttlMs: 0, reason }, /ttlMs/],
  [{ action: 'setShape', shape: { rate: '5/s' }, ttlMs: 1.5, reason }, /ttlMs/],
  [{ action: 'pause', ttlMs: 1e15, reason }, /ttlMs/],
  [{ action: 'clearShape', fields: ['version'], reason }, /fields\.0: expected one of rate/],
  [{ action: 'setMode', mode: 'fast', reason }, /mode/],
  [{ action: 'setGroup', group: 'acme', reason }, /settings/],
  [{ action: 'clearGroup', group: 'acme', fields: ['share'], reason }, /fields\.0: expected one of rate, burst/],
  [{ action: 'pauseGroup', reason }, /group: expected the id of a group/],
  [{ action: 'resumeGroup', group: 5, reason }, /group: expected the id of a group/],
  [{ action: 'resumeGroup', group: 'acme', ttlMs: 5, reason }, /ttlMs/],
  [{ action: 'redrive', reason }, /from/],
  [{ action: 'dropDeadLetters', reason }, /from/],
  [{ action: 'dropDeadLetter', from: 'emails-dead', reason }, /letterId: expected the id of a job/],
  [{ action: 'retryJob', reason }, /jobId: expected the id of a job/],
  [{ action: 'removeJob', jobId: '', reason }, /jobId: expected the id of a job/],
  [{ action: 'promoteJob', jobId: '4711' }, /reason: expected why/],
])('%j is none, and it is said why', (body, problem) => {
  const read = () => readAction(body)
  expect(read).toThrow(ProblemError)
  expect(read).toThrow(problem)
})

test.each<[object, string, RegExp]>([
  [{ action: 'resume', reason: '' }, 'reason', /expected why/],
  [{ action: 'pause', ttlMs: 0, reason }, 'ttlMs', /ttlMs/],
  [{ action: 'setShape', shape: { rate: '5/s', capacity: 0 }, reason }, 'shape.capacity', /a whole number >= 1; got 0/],
  [{ action: 'setShape', shape: { rate: 'fast' }, reason }, 'shape.rate', /fast/],
  [{ action: 'setGroup', group: 'a', settings: { rate: '5' }, reason }, 'settings.rate', /got '5'/],
  [{ action: 'setGroup', group: 'a', settings: { burst: 1, weight: 0 }, reason }, 'settings.weight', /from 0.001 to/],
  [{ action: 'setGroup', group: 'a', settings: { wait: 1 }, reason }, 'settings.wait', /no field 'wait'/],
])('%j says which field is wrong: %s', (body, field, problem) => {
  const read = () => readAction(body)
  expect(read).toThrow(problem)
  expect(read).toThrow(expect.objectContaining({ terms: expect.objectContaining({ status: 422, extra: { field } }) }))
})
