import { expect, test } from 'vitest'
import { decodeFeedbackChange, encodeFeedbackRequest, readFeedbackReply } from '../../src/feedback/request.ts'

const REQUEST = { found: [], sentUs: 5_000_500.4, by: 'w1', adapt: undefined, oks: 2 }
const encoded = (more: object = {}) => JSON.parse(encodeFeedbackRequest({ ...REQUEST, ...more } as never))

test('a request says when calls departed in whole µs and ms, never later than they did', () => {
  expect(encoded()).toMatchObject({ sent: '5000500', by: 'w1', oks: 2, found: [] })
  expect(encoded({ okUs: 4999, okAgoMs: 7 })).toMatchObject({ ok_at: 4, ok_ago: 7 })
  expect(encoded({ calls: { count: 3, lastUs: 1999, agoMs: 5 } }).calls).toEqual({ oks: 3, ok_at: 1, ok_ago: 5 })
  const target = { id: 'host', sameUs: 2999, othersUs: 3999 }
  const job = { held: { id: '7', token: 't', score: '1' }, head: true, retried: false, giveUpAfterMs: 9 }
  expect(encoded({ job: { ...job, target } }).job).toEqual({
    ...{ id: '7', token: 't', score: '1', head: true, retried: false, give_up_ms: 9 },
    ...{ target: 'host', same: 2, others: 3 },
  })
  expect(encoded({ job }).job).not.toHaveProperty('same')
})

test('each request is another call', () => {
  const [one, other] = [encoded(), encoded()]
  expect(one.call).not.toBe(other.call)
  expect(one.jitter).not.toBe(other.jitter)
})

test('a text that was cut inside a letter is sent as one that Redis can read', () => {
  expect(encoded({ by: 'a\ud83d' }).by).toBe('a\ufffd')
  expect(encoded({ by: 'a\ud83d\ude00' }).by).toBe('a\ud83d\ude00')
})

test('changes have dates and numbers, if they have any', () => {
  const change = { kind: 'slow', at: 5, by: 'w1' }
  expect(decodeFeedbackChange(change)).toEqual({ ...change, at: new Date(5) })
  expect(decodeFeedbackChange({ ...change, until: 9, rate: '2.5', from: '10' })).toEqual({
    ...{ ...change, at: new Date(5), until: new Date(9), rate: 2.5, from: 10 },
  })
})

test.each([
  [0, { back: false, usesAttempt: false, isGivenUp: false, afterMs: 0 }],
  [250, { back: false, usesAttempt: false, isGivenUp: false, afterMs: 250 }],
  [-1, { back: true, usesAttempt: false, isGivenUp: false, afterMs: 0 }],
  [-2, { back: false, usesAttempt: true, isGivenUp: false, afterMs: 0 }],
  [-3, { back: false, usesAttempt: false, isGivenUp: true, afterMs: 0 }],
])('the code %d of a reply says what becomes of the job', (code, expected) => {
  expect(readFeedbackReply(['{}', '1', code])).toEqual({ changes: [], throttled: 1, ...expected })
  expect(readFeedbackReply(['[{"kind":"pause","at":1}]', 0, code]).changes).toEqual([
    { kind: 'pause', at: new Date(1) },
  ])
})
