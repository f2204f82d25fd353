import type { AddressInfo } from 'node:net'
import { createTransport } from 'nodemailer'
import { SMTPServer, type SMTPServerOptions } from 'smtp-server'
import { expect, onTestFinished, test } from 'vitest'
import type { SmtpAnswer } from '../../../src/egress/answer.ts'
import { answerOf } from '../../../src/egress/answers/answer-of.ts'

const at = { receivedAtMs: 1_800_000_000_000, latencyMs: 12 }

/** A server that answers one command as it is told to. */
async function start(options: SMTPServerOptions): Promise<number> {
  const server = new SMTPServer({
    disabledCommands: ['STARTTLS'],
    authOptional: true,
    disableReverseLookup: true,
    closeTimeout: 1,
    ...options,
  })
  server.on('error', () => {})
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => new Promise<void>((resolve) => server.close(() => resolve())))
  return (server.server.address() as AddressInfo).port
}

async function send(port: number, auth?: { user: string; pass: string }) {
  const transport = createTransport({ host: '127.0.0.1', port, connectionTimeout: 5000, ...(auth && { auth }) })
  onTestFinished(() => transport.close())
  const threw = await transport
    .sendMail({ from: 'shop@example.com', to: 'reader@example.org', subject: 's', text: 't' })
    .then(
      () => expect.unreachable('the mail was sent'),
      (reason: unknown) => reason,
    )
  return answerOf({ threw }, at)
}

const refusal = (responseCode: number, message: string) => Object.assign(new Error(message), { responseCode })

test('a refused greeting', async () => {
  const port = await start({ onConnect: (_, reply) => reply(refusal(421, '4.3.2 too many connections')) })
  expect(await send(port)).toMatchObject({ protocol: 'smtp', failed: true, status: 421, enhanced: '4.3.2' })
})

test('a refused login', async () => {
  const port = await start({
    onAuth: (_auth, _session, reply) => reply(refusal(454, '4.7.0 Temporary authentication failure')),
  })
  expect(await send(port, { user: 'u', pass: 'p' })).toMatchObject({ status: 454, enhanced: '4.7.0', code: 'EAUTH' })
})

test('a refused sender', async () => {
  const port = await start({ onMailFrom: (_address, _session, reply) => reply(refusal(451, '4.7.1 Greylisted')) })
  expect(await send(port)).toMatchObject({ status: 451, enhanced: '4.7.1', code: 'EENVELOPE', command: 'MAIL FROM' })
})

test('recipients that were all refused', async () => {
  const port = await start({ onRcptTo: (_address, _session, reply) => reply(refusal(550, '5.1.1 no such mailbox')) })
  expect(await send(port)).toMatchObject({ status: 550, enhanced: '5.1.1', code: 'EENVELOPE' })
})

test('a refused message; the text ends in the reply', async () => {
  const port = await start({
    onData: (stream, _session, reply) => {
      stream.resume()
      stream.on('end', () => reply(refusal(454, 'Throttling failure: Maximum sending rate exceeded')))
    },
  })
  const answer = await send(port)
  expect(answer).toMatchObject({
    status: 454,
    code: 'EMESSAGE',
    text: expect.stringMatching(/454 Throttling failure: Max.*$/),
  })
  expect(answer).not.toHaveProperty('enhanced')
})

test('a refused connection', async () => {
  const server = new SMTPServer({ disabledCommands: ['STARTTLS'] })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.server.address() as AddressInfo
  await new Promise<void>((resolve) => server.close(() => resolve()))
  const answer = await send(port)
  expect(answer).toMatchObject({ protocol: 'smtp', failed: true, code: 'ESOCKET', command: 'CONN' })
  expect(answer).not.toHaveProperty('status')
})

const answered = (fields: object) =>
  answerOf({ threw: Object.assign(new Error('x'), { code: 'EMESSAGE', ...fields }) }, at)

test.each([
  ['the first of several lines', 550, '550-5.7.26 This mail is\n550-5.7.26 unauthenticated\n550 5.7.26 see', '5.7.26'],
  ['an IP address is none', 554, '554 blocked 5.188.10.20', undefined],
  ['the end of an IP address is none', 554, '554 blocked 10.5.188.20', undefined],
  ['an IP address before it', 554, '554 [4.2.2.1] 5.7.1 blocked', '5.7.1'],
  ['one of another class is not that of this reply', 421, '421 closing, as 5.7.1 said before', undefined],
  ['a full stop after it', 450, '450 see 4.2.1.', '4.2.1'],
])('enhanced code: %s', (_, responseCode, response, enhanced) => {
  const answer = answered({ responseCode, response }) as SmtpAnswer
  expect(answer.protocol).toBe('smtp')
  expect(answer.enhanced).toBe(enhanced)
})

test('ETIMEDOUT is of SMTP where it names a command, and of the system otherwise', () => {
  expect(answered({ code: 'ETIMEDOUT', command: 'CONN' })).toMatchObject({ protocol: 'smtp', code: 'ETIMEDOUT' })
  expect(answered({ code: 'ETIMEDOUT' })).toMatchObject({ protocol: 'other', code: 'ETIMEDOUT' })
})
