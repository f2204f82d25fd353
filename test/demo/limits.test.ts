import { expect, test } from 'vitest'
import { DEFAULT_MAX_LATENESS_MS } from '../../src/shape/shape.ts'
import { checkDuration, limitsFor, maxLatenessMs, TooLongError } from '../../workers/demo/limits.ts'
import type { OutboxLine } from '../../workers/demo/read-outbox.ts'

const mail: OutboxLine = {
  kind: 'email',
  data: { from: 'a@example.com', to: 'b@example.com', subject: 's', text: 't' },
}
const write: OutboxLine = { kind: 'write', data: { statement: 'record-event', parameters: {} } }
const lines = [...Array.from({ length: 250 }, () => mail), ...Array.from({ length: 3 }, () => write)]

test('a real Redis gets the whole input at the usual rate', () => {
  expect(limitsFor('path', lines, {})).toEqual({ rate: '50/s', capacity: 200, lines })
  expect(limitsFor('given', lines, { rate: '7/s', capacity: 9 })).toEqual({ rate: '7/s', capacity: 9, lines })
})

test('the lateness that the report names is the default', () => {
  expect(maxLatenessMs).toBe(DEFAULT_MAX_LATENESS_MS)
})

test('the emulator gets less, and says so', () => {
  const limits = limitsFor('emulator', lines, {})
  expect(limits).toMatchObject({ rate: '10/s', capacity: 50 })
  expect(limits.lines).toHaveLength(203)
  expect(limits.notice).toMatch(/emulator is used instead: 10\/s and the first 200 emails and 3 writes only/)
})

test('a rate that was asked for is kept on the emulator too', () => {
  expect(limitsFor('emulator', lines, { rate: '2/s' })).toMatchObject({ rate: '2/s', capacity: 50 })
})

test('a count of one is singular', () => {
  expect(limitsFor('emulator', [mail, write, write], {}).notice).toMatch(/the first 1 email and 2 writes only/)
})

test('a run of an hour is allowed, a longer one is refused with its estimate', () => {
  const mails = Array.from({ length: 61 }, () => mail)
  expect(() => checkDuration([...mails, write], '1/min')).not.toThrow()
  expect(() => checkDuration([...mails, mail], '1/min')).toThrow(TooLongError)
  expect(() => checkDuration([...mails, mail], '1/h')).toThrow(
    /^62 lines for one queue at 1\/h take about 2\.5 days: .* --rate/,
  )
  expect(() => checkDuration([mail], '1/day')).not.toThrow()
  expect(() => checkDuration(lines)).not.toThrow()
})
