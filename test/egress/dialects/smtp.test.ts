import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { SmtpAnswer } from '../../../src/egress/answer.ts'
import { answerOf } from '../../../src/egress/answers/answer-of.ts'
import { smtpDialect } from '../../../src/egress/dialects/smtp.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE

/** The answer in nodemailer's error for this reply. */
function replied(response: string, fields: object = {}): SmtpAnswer {
  const responseCode = Number(response.slice(0, 3))
  const error = Object.assign(new Error(`Message failed: ${response}`), {
    code: 'EMESSAGE',
    response,
    responseCode,
    ...fields,
  })
  return answerOf({ threw: error }, { receivedAtMs: 1_800_000_000_000, latencyMs: 12 }) as SmtpAnswer
}

const hardPause = (forMs: number | undefined) => ({ kind: 'pause', forMs, hard: true })
const breather = { kind: 'pause', forMs: 5000, hard: false }
const connections = (limit: number) => ({ kind: 'concurrency', limit, ttlMs: 15 * MINUTE })
const fewer = { kind: 'concurrency', factor: 0.5, ttlMs: 15 * MINUTE }
const slow = { kind: 'slow', factor: 0.7 }
const retryJob = { kind: 'retryJob' }
const fatal = { kind: 'fatal' }

const login = { code: 'EAUTH', command: 'AUTH PLAIN' }
const greeting = { code: 'EPROTOCOL', command: 'CONN' }
const recipient = { code: 'EENVELOPE', command: 'RCPT TO' }

type Row = readonly [reply: string, asks: readonly object[], fields?: object]

const rows: Readonly<Record<string, readonly Row[]>> = {
  '421: the destination pauses, and is met with half as many connections': [
    ['421 4.7.0 Try again later, closing connection', [hardPause(undefined), fewer]],
    ['421 4.4.5 Server busy', [hardPause(undefined), fewer]],
    ['421 4.3.2 too many connections from your host', [hardPause(undefined), fewer], greeting],
    ['421 closing transmission channel', [hardPause(undefined), fewer], login],
  ],
  '450 4.2.1: one recipient is flooded': [
    ['450 4.2.1 The user you are trying to contact is receiving mail at a rate that …', [retryJob], recipient],
    ['452 4.2.2 The account is over quota', [retryJob], recipient],
  ],
  '432 4.3.2 and "concurrent connections": fewer at once and a short pause': [
    ['432 4.3.2 STOREDRV.ClientSubmit; sender thread limit exceeded', [breather, connections(3)]],
    ['451 4.3.0 Too many concurrent connections', [breather, connections(3)]],
  ],
  '450 and 451 4.7.1 greylisted: that job, after 5 min': [
    [
      '450 4.2.0 <a@b.example>: Recipient address rejected: Greylisted',
      [{ ...retryJob, afterMs: 5 * MINUTE }],
      recipient,
    ],
    ['451 4.7.1 Greylisting in action, please come back later', [{ ...retryJob, afterMs: 5 * MINUTE }], recipient],
    ['451 4.7.1 Please try again later', [{ ...retryJob, afterMs: 5 * MINUTE }], recipient],
    ['450 graylisted', [{ ...retryJob, afterMs: 5 * MINUTE }], recipient],
  ],
  '451 4.3.0 and 4.4.x: a local error, retried': [
    ['451 4.3.0 Temporary lookup failure', [retryJob]],
    ['451 4.4.2 Timeout waiting for data', [retryJob]],
    ['451 Requested action aborted: local error in processing', [retryJob]],
  ],
  '452 4.3.1: the receiver is out of resources': [
    ['452 4.3.1 Insufficient system storage', [hardPause(undefined)]],
    ['452 Requested action not taken: insufficient system storage', [hardPause(undefined)]],
  ],
  'the limits of Postfix for one client are a rate, not greylisting': [
    ['450 4.7.1 Error: too much mail from 192.0.2.1', [breather, slow], { command: 'MAIL FROM' }],
    ['450 4.7.1 Error: too many recipients from 192.0.2.1', [breather, slow], recipient],
    ['450 4.7.1 Error: too many AUTH commands from 192.0.2.1', [breather, slow], login],
    ['454 4.7.0 Error: too many new TLS sessions from 192.0.2.1', [breather, slow], { code: 'ETLS' }],
    ['421 4.7.0 mx.example Error: too many connections from 192.0.2.1', [hardPause(undefined), fewer], greeting],
  ],
  'too many recipients of one mail: that job again, soon': [
    ['452 4.5.3 Error: too many recipients', [{ ...retryJob, afterMs: 1000 }], recipient],
    ['452 too many recipients', [{ ...retryJob, afterMs: 1000 }], recipient],
    ['451 4.5.3 RCPT TO: Too many recipients', [{ ...retryJob, afterMs: 1000 }], recipient],
    [
      '452 4.5.3 Domain policy size per transaction exceeded, please try this recipient in a separate transaction',
      [{ ...retryJob, afterMs: 1000 }],
      recipient,
    ],
  ],
  '452 4.5.3: by its text': [
    ['452 4.5.3 Daily sending quota exceeded', [hardPause(HOUR)]],
    ['452 4.4.5 Rate limit: 10 messages per second', [breather, slow]],
  ],
  '454: a rate is told from a login': [
    ['454 Throttling failure: Maximum sending rate exceeded.', [breather, slow]],
    ['454 Throttling failure: Daily message quota exceeded.', [hardPause(HOUR)]],
    ['454 4.7.0 Throttled: too many messages', [breather, slow]],
    ['454 4.7.0 Temporary authentication failure', [], login],
    ['454 4.7.0 Temporary authentication failure', []],
    ['454 4.7.0 TLS not available due to local problem', []],
    ['432 4.7.12 A password transition is needed', [], login],
  ],
  'Yahoo [TSS04], [TS01]: two hours': [
    ['421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred', [hardPause(2 * HOUR)]],
    ['421 4.7.0 [TS01] Messages from 192.0.2.1 temporarily deferred due to user complaints', [hardPause(2 * HOUR)]],
    ['451 4.7.0 [TS04] deferred', [hardPause(2 * HOUR)]],
  ],
  '550 5.4.5, 5.7.232 and their like: a quota in spite of the code': [
    ['550 5.4.5 Daily sending quota exceeded', [hardPause(HOUR)]],
    ['550-5.4.5 Daily user sending limit exceeded.\n550 5.4.5 see', [hardPause(HOUR)]],
    ['550 5.7.232 Your message can not be sent because your tenant exceeded its limit', [hardPause(HOUR)]],
    ['550 5.7.233 tenant exceeded its daily limit', [hardPause(HOUR)]],
    ["550 5.1.90 you've reached your daily limit for message recipients", [hardPause(HOUR)]],
    ['550 You have exceeded the daily limit of messages', [hardPause(HOUR)]],
  ],
  'any other 5yz about the message: never again': [
    ['550 5.1.1 no such mailbox', [fatal], recipient],
    ['554 5.7.1 Message refused', [fatal]],
    ['552 5.2.2 The mailbox is over its daily message quota', [fatal], recipient],
    ['552 5.3.4 Message exceeds the sending limit for sizes', [fatal]],
    ['554 5.7.1 Daily digests look like spam', [fatal]],
  ],
  '5yz about the login or the greeting: a failure as any other': [
    ['535 5.7.8 Authentication credentials invalid', [], login],
    ['530 5.7.0 Authentication required', [], { code: 'EENVELOPE', command: 'MAIL FROM' }],
    ['554 5.7.1 No SMTP service here', [], greeting],
  ],
}

describe.each(Object.entries(rows))('%s', (_, replies) => {
  test.each(replies.map(([reply, asks, fields]) => ({ reply, asks, fields })))('$reply', ({ reply, asks, fields }) => {
    const given = smtpDialect(replied(reply, fields))
    expect(given.map(({ scope: _scope, source: _source, reason: _reason, ...said }) => said)).toEqual(
      asks.map((one) => expect.objectContaining(one)),
    )
    for (const { scope, source } of given) expect([scope, source]).toEqual(['queue', 'smtp'])
  })
})

const failure = (code: string, text: string, cause = ''): SmtpAnswer => ({
  ...{ protocol: 'smtp', failed: true, text, name: 'Error', code, command: 'CONN' },
  ...(cause !== '' && { cause }),
})

test.each([
  failure('ESOCKET', 'connect ECONNREFUSED 192.0.2.1:25', 'ECONNREFUSED'),
  failure('ESOCKET', 'self-signed certificate', 'DEPTH_ZERO_SELF_SIGNED_CERT'),
  failure('EDNS', 'getaddrinfo ENOTFOUND mx.example.org', 'ENOTFOUND'),
  failure('ETLS', 'Connection closed unexpectedly'),
  failure('ETIMEDOUT', 'Connection timeout'),
  failure('ETIMEDOUT', 'Greeting never received'),
])('there is no connection: $code, $text', (answer) => {
  const reason = `SMTP, no connection: ${answer.text}`
  const pause = { kind: 'pause', scope: 'queue', source: 'smtp', reason, forMs: undefined, hard: true }
  expect(smtpDialect(answer)).toEqual([{ ...pause, about: 'destination' }])
})

test.each([
  failure('ECONNECTION', 'Connection closed unexpectedly'),
  failure('ETIMEDOUT', 'Timeout'),
  failure('ESOCKET', 'read ECONNRESET', 'ECONNRESET'),
])('a connection broke, and the mail may be there: $code, $text', (answer) => {
  expect(smtpDialect(answer)).toMatchObject([{ kind: 'pause', forMs: undefined, hard: true, mayBeDone: true }])
  expect(smtpDialect(answer)[0]).not.toHaveProperty('about')
})

test.each([
  ['EENVELOPE', 'fatal'],
  ['EMESSAGE', 'fatal'],
  ['EAUTH', undefined],
  ['ENOAUTH', undefined],
])('%s without a reply: %s', (code, kind) => {
  const answer: SmtpAnswer = { protocol: 'smtp', failed: true, text: '', name: 'Error', code }
  expect(smtpDialect(answer)[0]?.kind).toBe(kind)
})

test('reasons are one line, and name no address of a mail', () => {
  const [said] = smtpDialect(replied('421 4.7.0 <reader@example.org>: slow\r\ndown, reader@example.org!', recipient))
  expect(said?.reason).toBe('SMTP, closing: Message failed: 421 4.7.0 <…>: slow down, …')
})

test('no reply breaks it, and none is paused longer than a day', () => {
  const texts = fc.oneof(
    fc.string(),
    fc.constantFrom('daily quota', 'rate', '[TSS04]', '@'.repeat(2000), 'a@'.repeat(900)),
  )
  const answers = fc.record(
    {
      text: texts,
      code: fc.constantFrom('', 'EENVELOPE', 'EMESSAGE', 'EAUTH', 'ESOCKET', 'x'),
      status: fc.integer({ min: 200, max: 599 }),
      enhanced: fc.constantFrom('4.2.1', '4.5.3', '4.7.1', '5.4.5', '5.7.1'),
    },
    { requiredKeys: ['text', 'code'] },
  )
  fc.assert(
    fc.property(answers, (some) => {
      for (const said of smtpDialect({ protocol: 'smtp', failed: true, name: '', ...some })) {
        expect(said.reason).not.toMatch(/[\r\n]/)
        expect(said.reason.length).toBeLessThanOrEqual(200)
        if (said.kind === 'pause') expect(said.forMs ?? 0).toBeLessThanOrEqual(86_400_000)
      }
    }),
  )
})
