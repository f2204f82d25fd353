import { expect, test } from 'vitest'
import { limitsFor } from '../../workers/demo/limits.ts'
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

test('the emulator gets less, and says so', () => {
  const limits = limitsFor('emulator', lines, {})
  expect(limits).toMatchObject({ rate: '10/s', capacity: 50 })
  expect(limits.lines).toHaveLength(203)
  expect(limits.notice).toMatch(/emulator stands in: 10\/s and the first 200 emails and 3 writes/)
})

test('a rate that was asked for is kept on the emulator too', () => {
  expect(limitsFor('emulator', lines, { rate: '2/s' })).toMatchObject({ rate: '2/s', capacity: 50 })
})
