import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer, type Server, type Socket } from 'node:net'
import { inspect } from 'node:util'
import { UnrecoverableError } from 'bullmq'
import { SMTPServer } from 'smtp-server'
import { afterEach, describe, expect, test } from 'vitest'
import { effectId } from '../../../src/effect-id.ts'
import { type SmtpSinkOptions, startSmtpSink } from '../../../workers/services/smtp.ts'
import { DestinationRefusedError, InvalidPayloadError } from '../../programs/src/errors.ts'
import { createEmailProcessor, type EmailJob } from '../src/email/processor.ts'
import { createMailTransport, type MailTransport } from '../src/email/transport.ts'
import { mail, refusedMails } from './refused-mails.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

function connect(url: string): MailTransport {
  const transport = createMailTransport({ url, timeoutMs: 20_000 })
  closers.push(() => transport.close())
  return transport
}

async function startSink(options?: SmtpSinkOptions) {
  const sink = await startSmtpSink(options)
  closers.push(() => sink.stop())
  const transport = connect(sink.url)
  return {
    sink,
    transport,
    process: createEmailProcessor(transport, { prefix: 'bull', allowMultipleRecipients: false }),
  }
}

function jobOf(data: unknown, id = '1'): EmailJob {
  const kept = { id, queueName: 'emails', timestamp: 1_700_000_000_000, data: data as EmailJob['data'] }
  return { ...kept, progress: 0, updateProgress: () => Promise.reject(new Error('expected one ending for all')) }
}

/** The error of a promise that must reject. */
async function failureOf(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    () => {
      throw new Error('expected a rejection')
    },
    (error: Error) => error,
  )
}

test('a mail arrives as the job says, under a Message-ID that a second delivery repeats', async () => {
  const { sink, process } = await startSink()
  const job = jobOf({ ...mail, cc: 'c@example.org', subject: 'Grüße' })
  const id = effectId({ prefix: 'bull', queueName: 'emails', jobId: '1', timestamp: job.timestamp })
  const sent = await process(job)
  expect(sent).toEqual({
    messageId: `<${id}@example.com>`,
    accepted: ['b@example.org', 'c@example.org'],
    rejected: [],
    response: expect.stringMatching(/^250 /),
  })
  expect((await process(job)).messageId).toBe(sent.messageId)
  expect((await process(jobOf(mail, '2'))).messageId).not.toBe(sent.messageId)
  expect(sink.mails).toHaveLength(3)
  expect(sink.mails[0]).toMatchObject({
    messageId: sent.messageId,
    from: 'shop@example.com',
    to: ['b@example.org', 'c@example.org'],
    subject: 'Grüße',
  })
})

// Fault table, row 28.
test('nothing that is refused opens a connection', async () => {
  let connections = 0
  const server = createServer(() => connections++).listen(0, '127.0.0.1')
  await once(server, 'listening')
  closers.push(() => server.close())
  const transport = connect(`smtp://127.0.0.1:${(server.address() as AddressInfo).port}`)
  const process = createEmailProcessor(transport, { prefix: 'bull', allowMultipleRecipients: false })
  for (const [name, data] of refusedMails) {
    const error = await failureOf(process(jobOf(data)))
    expect(error, name).toBeInstanceOf(UnrecoverableError)
    expect(error.cause, name).toBeInstanceOf(InvalidPayloadError)
  }
  expect(connections).toBe(0)
})

test.each([
  ['a file', { text: { path: '/etc/hostname' } }],
  ['a URL', { html: { href: 'http://127.0.0.1:9/' } }],
  ['an attached file', { text: 'hi', attachments: [{ path: '/etc/hostname' }] }],
])('the transport itself reads no %s', async (_, content) => {
  const { sink, transport } = await startSink()
  await expect(transport.sendMail({ from: 'a@example.com', to: 'b@example.org', ...content })).rejects.toThrow(
    /rejected/,
  )
  expect(sink.mails).toHaveLength(0)
})

describe('a reply of the server', () => {
  test.each([421, 450, 451, 452, 454])('%i is retried by the queue, once for each attempt', async (code) => {
    let asked = 0
    const { process } = await startSink({
      respond: () => {
        asked += 1
        return { code, message: 'later' }
      },
    })
    const error = await failureOf(process(jobOf(mail)))
    expect(error).not.toBeInstanceOf(UnrecoverableError)
    expect(error).toMatchObject({ responseCode: code })
    expect(asked).toBe(1)
  })

  test.each([550, 552, 554])('%i is final', async (code) => {
    const { process } = await startSink({ respond: () => ({ code, message: 'no' }) })
    const error = await failureOf(process(jobOf(mail)))
    expect(error).toBeInstanceOf(UnrecoverableError)
    expect(error.message).toMatch(new RegExp(`refused the job permanently \\(${code}\\)`))
    expect(error.cause).toBeInstanceOf(DestinationRefusedError)
    expect(error.cause).toMatchObject({ code: `${code}` })
  })

  test('mails are sent as before after refusals', async () => {
    let refuse = true
    const { sink, process } = await startSink({ respond: () => (refuse ? { code: 550, message: 'no' } : undefined) })
    await Promise.all([1, 2, 3, 4].map((id) => failureOf(process(jobOf(mail, `${id}`)))))
    refuse = false
    await process(jobOf(mail))
    expect(sink.mails).toHaveLength(1)
  })
})

describe('a server that speaks of the recipient', () => {
  const replies: Readonly<Record<string, [number, string]>> = {
    "o'brien@example.org": [550, "5.1.1 <o'brien@example.org>: user unknown; ask postmaster@example.org."],
    'full@example.org': [452, '4.2.2 full@example.org is over quota'],
  }

  async function refused(to: string): Promise<Error> {
    const [responseCode, message] = replies[to] as [number, string]
    const process = await startServer((_, answer) => answer(Object.assign(new Error(message), { responseCode })))
    return failureOf(process(jobOf({ ...mail, to })))
  }

  test('is quoted without addresses where it refuses for good', async () => {
    const error = await refused("o'brien@example.org")
    expect(error.message).toMatch(
      /^the SMTP server refused the job permanently \(550\): .*: 550 5\.1\.1 <…>: user unknown; ask …$/,
    )
    expect(inspect(error, { depth: 9, showHidden: true })).not.toContain('example.org')
  })

  test('is quoted without addresses where the mail may come again', async () => {
    const error = await refused('full@example.org')
    expect(error).toMatchObject({ responseCode: 452, code: 'EENVELOPE', response: '452 4.2.2 … is over quota' })
    expect(inspect(error, { depth: 9, showHidden: true })).not.toContain('example.org')
  })
})

test('421 after a mail that was taken reaches the queue, and nothing is sent behind its back', async () => {
  let recipients = 0
  const process = await startServer((_, answer) => {
    recipients += 1
    answer(recipients === 2 ? Object.assign(new Error('4.7.0 Try again later'), { responseCode: 421 }) : undefined)
  })
  await process(jobOf(mail))
  expect(await failureOf(process(jobOf(mail, '2')))).toMatchObject({ responseCode: 421 })
  expect(recipients).toBe(2)
})

/** An email processor before a server that answers recipients so. */
async function startServer(onRcptTo: (address: unknown, answer: (error?: Error | null) => void) => void) {
  const server = new SMTPServer({
    ...{ disabledCommands: ['STARTTLS', 'AUTH'], disableReverseLookup: true, closeTimeout: 1 },
    onRcptTo: (address, _session, answer) => onRcptTo(address, answer),
  })
  server.on('error', () => {})
  server.listen(0, '127.0.0.1')
  await once(server.server, 'listening')
  closers.push(() => new Promise<void>((resolve) => server.close(resolve)))
  const transport = connect(`smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}`)
  return createEmailProcessor(transport, { prefix: 'bull', allowMultipleRecipients: false })
}

test('a refused login is no verdict on the mail: it is retried', async () => {
  const server = new SMTPServer({
    allowInsecureAuth: true,
    disabledCommands: ['STARTTLS'],
    disableReverseLookup: true,
    onAuth: (_auth, _session, reply) => reply(new Error('wrong password')),
  })
  server.listen(0, '127.0.0.1')
  await once(server.server, 'listening')
  closers.push(() => new Promise<void>((resolve) => server.close(resolve)))
  const transport = connect(`smtp://user:wrong@127.0.0.1:${(server.server.address() as AddressInfo).port}`)
  const process = createEmailProcessor(transport, { prefix: 'bull', allowMultipleRecipients: false })
  const error = await failureOf(process(jobOf(mail)))
  expect(error).toMatchObject({ code: 'EAUTH', responseCode: 535 })
  expect(error).not.toBeInstanceOf(UnrecoverableError)
})

test.each([
  ['before the server says anything', (socket: Socket) => socket.destroy()],
  ['in the middle of a mail', cutAtData],
])('a connection that breaks %s is not tried again behind the back of the meter', async (_, talk) => {
  let connections = 0
  const server = createServer((socket) => {
    connections += 1
    talk(socket)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  closers.push(() => closeServer(server))
  const transport = connect(`smtp://127.0.0.1:${(server.address() as AddressInfo).port}`)
  const process = createEmailProcessor(transport, { prefix: 'bull', allowMultipleRecipients: false })
  const error = await failureOf(process(jobOf(mail)))
  expect(error).not.toBeInstanceOf(UnrecoverableError)
  expect(connections).toBe(1)
})

/** Takes every command and cuts the connection once the mail's data comes. */
function cutAtData(socket: Socket): void {
  socket.on('error', () => undefined)
  socket.write('220 test\r\n')
  socket.on('data', (chunk) => {
    const command = chunk.toString().slice(0, 4).toUpperCase()
    if (command === 'DATA') socket.write('354 go on\r\n')
    else if (/^(EHLO|HELO|MAIL|RCPT)$/.test(command)) socket.write('250 ok\r\n')
    else socket.destroy()
  })
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()))
}
