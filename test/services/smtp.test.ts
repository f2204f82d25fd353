import nodemailer from 'nodemailer'
import { expect, onTestFinished, test } from 'vitest'
import { type ReceivedMail, type SmtpSink, type SmtpSinkOptions, startSmtpSink } from '../../workers/services/smtp.ts'

async function start(options: SmtpSinkOptions = {}): Promise<SmtpSink> {
  const sink = await startSmtpSink(options)
  onTestFinished(() => sink.stop())
  return sink
}

function pooled(sink: SmtpSink) {
  const transport = nodemailer.createTransport({
    url: sink.url,
    pool: true,
    maxConnections: 2,
    maxRequeues: 0,
  } as object)
  onTestFinished(() => transport.close())
  return transport
}

const mail = (subject: string, to = 'reader@example.org') => ({
  ...{ from: 'Shop <shop@example.com>', to, subject, text: 'Hello' },
  ...{ messageId: `<${subject}@example.com>`, headers: { 'X-Job-Id': `job-${subject}` } },
})

test('an accepted mail is recorded with its envelope, headers, size and time of arrival', async () => {
  const heard: ReceivedMail[] = []
  const sink = await start({ onMail: (received) => heard.push(received) })
  const before = performance.timeOrigin + performance.now()
  await pooled(sink).sendMail(mail('welcome', 'one@example.org, two@example.org'))
  const after = performance.timeOrigin + performance.now()
  const [received] = sink.mails
  expect(received).toMatchObject({
    messageId: '<welcome@example.com>',
    from: 'shop@example.com',
    to: ['one@example.org', 'two@example.org'],
    subject: 'welcome',
    jobId: 'job-welcome',
  })
  expect(received!.size).toBeGreaterThan(100)
  expect(received!.receivedAtMs).toBeGreaterThan(before)
  expect(received!.receivedAtMs).toBeLessThan(after)
  expect(heard).toEqual(sink.mails)
})

test.each([
  [451, '4.3.2 busy, try again later'],
  [454, '4.7.0 temporary failure'],
  [550, '5.1.1 no such mailbox'],
])('a scripted reply is sent word for word and the mail is not accepted: %i', async (code, message) => {
  const sink = await start({ respond: ({ subject }) => (subject === 'refused' ? { code, message } : undefined) })
  const transport = pooled(sink)
  const error = await transport.sendMail(mail('refused')).catch((reason) => reason)
  expect(error).toMatchObject({ responseCode: code, response: `${code} ${message}` })
  await transport.sendMail(mail('accepted'))
  expect(sink.mails.map(({ subject }) => subject)).toEqual(['accepted'])
})

test('421 closes the connection, and the next mail gets through on another', async () => {
  let refusals = 1
  const sink = await start({ respond: () => (refusals-- > 0 ? { code: 421, message: '4.7.0 slow down' } : undefined) })
  const transport = pooled(sink)
  await expect(transport.sendMail(mail('first'))).rejects.toMatchObject({ responseCode: 421 })
  await transport.sendMail(mail('second'))
  expect(sink.mails.map(({ subject }) => subject)).toEqual(['second'])
})

test('many mails over pooled connections all arrive once', async () => {
  const sink = await start()
  const transport = pooled(sink)
  const subjects = Array.from({ length: 100 }, (_, index) => `mail-${index}`)
  await Promise.all(subjects.map((subject) => transport.sendMail(mail(subject))))
  expect(sink.mails.map(({ subject }) => subject).sort()).toEqual(subjects.sort())
})

test('stop ends idle pooled connections and may be called twice', async () => {
  const sink = await start()
  const transport = pooled(sink)
  await transport.sendMail(mail('one'))
  await sink.stop()
  await sink.stop()
  await expect(transport.sendMail(mail('two'))).rejects.toThrow()
})
