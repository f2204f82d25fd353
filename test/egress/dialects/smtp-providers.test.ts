import { expect, test } from 'vitest'
import type { Answer, SmtpAnswer } from '../../../src/egress/answer.ts'
import { gmailDialect } from '../../../src/egress/profiles/gmail.ts'
import { sesDialect } from '../../../src/egress/profiles/ses.ts'

const MINUTE = 60_000

function replied(text: string, status: number, enhanced?: string): SmtpAnswer {
  const said = { protocol: 'smtp', failed: true, text, name: 'Error', code: 'EMESSAGE', status } as const
  return enhanced === undefined ? said : { ...said, enhanced }
}

test.each([
  [
    'maximum sending rate: the next second, more slowly',
    replied('454 Throttling failure: Maximum sending rate exceeded.', 454),
    [
      { kind: 'pause', forMs: 1500, hard: false },
      { kind: 'slow', factor: 0.7 },
    ],
  ],
  [
    'daily quota: ten minutes, then one probe',
    replied('454 Throttling failure: Daily message quota exceeded.', 454),
    [{ kind: 'pause', forMs: 10 * MINUTE, hard: true }],
  ],
  ['454 4.7.0 is a login', replied('454 4.7.0 Temporary authentication failure', 454, '4.7.0'), []],
  [
    'any other reply as anywhere',
    replied('554 Message rejected: Email address is not verified.', 554),
    [{ kind: 'fatal' }],
  ],
])('SES over SMTP: %s', (_, answer, asks) => {
  expect(sesDialect(answer)).toEqual(
    asks.map((one) => expect.objectContaining({ ...one, scope: 'queue', source: 'smtp' })),
  )
})

test('SES by its API: throttling is what it is for all of AWS', () => {
  const answer: Answer = {
    ...{ protocol: 'http', failed: true, text: 'Rate exceeded', name: 'ThrottlingException', code: '' },
    ...{ status: 400, headers: {}, receivedAtMs: 1_800_000_000_000 },
  }
  expect(sesDialect(answer)).toMatchObject([{ kind: 'slow', factor: 0.7 }, { kind: 'retryJob' }])
  const other = { protocol: 'other', failed: true, text: '', name: '', code: '' } as const
  expect(sesDialect(other)).toEqual([])
  expect(sesDialect({ ...other, code: 'ECONNREFUSED' })).toMatchObject([{ kind: 'pause', about: 'destination' }])
})

test.each([
  [
    '450 4.2.1: that recipient, after ten minutes',
    replied('450-4.2.1 The user you are trying to contact is receiving mail at a rate', 450, '4.2.1'),
    [{ kind: 'retryJob', afterMs: 10 * MINUTE }],
  ],
  [
    '421 4.7.28: the sender pauses',
    replied('421-4.7.28 Gmail has detected an unusual rate of unsolicited mail', 421, '4.7.28'),
    [
      { kind: 'pause', forMs: undefined, hard: true },
      { kind: 'slow', factor: 0.7 },
    ],
  ],
  [
    'too many logins: fewer connections, later',
    replied('454 4.7.0 Too many login attempts, please try again later.', 454, '4.7.0'),
    [
      { kind: 'pause', forMs: 10 * MINUTE },
      { kind: 'concurrency', factor: 0.5 },
    ],
  ],
  ['550 5.2.1 is a refusal', replied('550 5.2.1 The account is disabled', 550, '5.2.1'), [{ kind: 'fatal' }]],
  ['any other reply as anywhere', replied('550 5.4.5 Daily sending quota exceeded', 550, '5.4.5'), [{ kind: 'pause' }]],
])('Gmail: %s', (_, answer, asks) => {
  expect(gmailDialect(answer)).toEqual(asks.map((one) => expect.objectContaining({ ...one, scope: 'queue' })))
})
