import { once } from 'node:events'
import { connect } from 'node:net'
import { UnrecoverableError } from 'bullmq'
import { afterEach, describe, expect, test } from 'vitest'
import { createEmailProcessor, type EmailJob, type SentMail } from '../../packages/workers/src/email/processor.ts'
import { createMailTransport } from '../../packages/workers/src/email/transport.ts'
import { withQueue } from '../../packages/workers/test/queues.ts'
import { profiles } from '../../src/egress/index.ts'
import { type FeedbackChange, type JobVerdict, ShapedWorker } from '../../src/index.ts'
import { exim, type Mta, openSmtpd, postfix, startMta } from '../../workers/services/mta.ts'
import { useRedis } from '../support/redis.ts'

/** `npm run test:mtas`: they need root rights and a Debian archive, which `npm run test:slow` does not ask for. */
const isWanted = process.env.MTAS === '1'
const redis = useRedis(import.meta.url)

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

async function start(mta: Mta, limits: string) {
  const server = await startMta(mta, limits)
  closers.push(() => server.stop())
  const transport = createMailTransport({ url: server.url, timeoutMs: 10_000 })
  closers.push(() => transport.close())
  return { ...server, process: createEmailProcessor(transport, { prefix: 'bull', allowMultipleRecipients: true }) }
}

const RECIPIENTS = ['a@example.org', 'b@example.org', 'c@example.org']
const TEXT = 'text '.repeat(100)

function mailTo(recipients: readonly string[]) {
  return { from: 'shop@example.com', to: recipients.join(', '), subject: 'Hello', text: TEXT }
}

function jobTo(count: number): EmailJob {
  const data = mailTo(RECIPIENTS.slice(0, count))
  const job = { id: '1', queueName: 'emails', timestamp: 1, data, progress: 0 }
  return { ...job, updateProgress: async (progress) => void Object.assign(job, { progress }) }
}

/** What the profile finds in a refusal: kinds, with their times and whether they probe. */
function verdictOf(error: unknown): string {
  const found = profiles.smtp.listen({ threw: error }, { receivedAtMs: Date.now(), latencyMs: 1 })
  const words = found.map(({ feedback }) => {
    if (feedback.kind === 'pause') return `${feedback.hard ? 'hard ' : ''}pause ${feedback.forMs ?? ''}`.trim()
    return feedback.kind === 'retryJob' ? `retryJob ${feedback.afterMs ?? ''}`.trim() : feedback.kind
  })
  const [reason = ''] = found.map(({ feedback }) => feedback.reason)
  return `${/^SMTP, ([^:]*)/.exec(reason)?.[1]}: ${words.join(', ')}`
}

interface Limit {
  readonly name: string
  readonly lines: string
  /** Recipients of each mail. Default 1. */
  readonly recipients?: number
  /** Connections that are open already. Default 0. */
  readonly open?: number
  /** What the refusals are taken for; one of these, where there are several behind semicolons. */
  readonly verdict: string
  /** Mails of three that got through to all of their recipients, at once. */
  readonly done: number
}

const RATE = 'rate: pause 5000, slow'
const CLOSING = 'closing: hard pause, concurrency'
const NEXT = 'recipients of one mail: retryJob 1000'
const FULL = 'resources: hard pause'
const REFUSED = 'permanent refusal: fatal'
const GREY = 'greylisting: retryJob 300000'

const access = (action: string) =>
  `smtpd_recipient_restrictions = check_recipient_access inline:{{b@example.org=${action}}}, permit`

const limits: readonly (readonly [Mta, readonly Limit[]])[] = [
  [
    postfix,
    [
      { name: 'messages', lines: 'smtpd_client_message_rate_limit = 2', verdict: RATE, done: 2 },
      { name: 'recipients', lines: 'smtpd_client_recipient_rate_limit = 2', verdict: RATE, done: 2 },
      {
        ...{ name: 'recipients, in the middle of a mail', recipients: 3 },
        ...{ lines: 'smtpd_client_recipient_rate_limit = 4', verdict: RATE, done: 1 },
      },
      { name: 'connections a minute', lines: 'smtpd_client_connection_rate_limit = 2', verdict: CLOSING, done: 2 },
      { name: 'connections', lines: 'smtpd_client_connection_count_limit = 1', open: 1, verdict: CLOSING, done: 0 },
      { name: 'recipients of a mail', lines: 'smtpd_recipient_limit = 2', recipients: 3, verdict: NEXT, done: 0 },
      {
        // It says 421 and closes the connection: nodemailer may see the one or the other first.
        ...{ name: 'errors', recipients: 2, verdict: `${CLOSING}; connection: hard pause`, done: 0 },
        lines: `smtpd_hard_error_limit = 1\n${access('defer')}`,
      },
      { name: 'free space', lines: 'queue_minfree = 1000000000000000', verdict: FULL, done: 0 },
      { name: 'size', lines: 'message_size_limit = 100', verdict: REFUSED, done: 0 },
      { name: 'one recipient deferred', lines: access('defer'), recipients: 3, verdict: GREY, done: 0 },
      {
        name: 'one recipient greylisted',
        lines: access('450 4.2.0 Greylisted'),
        recipients: 3,
        verdict: GREY,
        done: 0,
      },
      { name: 'one recipient refused', lines: access('reject'), recipients: 3, verdict: '', done: 3 },
    ],
  ],
  [
    exim,
    [
      { name: 'connections', lines: 'smtp_accept_max = 1', open: 1, verdict: CLOSING, done: 0 },
      { name: 'connections of a host', lines: 'smtp_accept_max_per_host = 1', open: 1, verdict: CLOSING, done: 0 },
      { name: 'load', lines: 'smtp_load_reserve = 0.000001', verdict: CLOSING, done: 0 },
      { name: 'recipients of a mail', lines: 'recipients_max = 2', recipients: 3, verdict: NEXT, done: 0 },
      {
        ...{ name: 'recipients of a mail, for good', recipients: 3, verdict: REFUSED, done: 0 },
        lines: 'recipients_max = 2\nrecipients_max_reject',
      },
      { name: 'free space', lines: 'check_spool_space = 1000000G', verdict: FULL, done: 0 },
      { name: 'size', lines: 'message_size_limit = 100', verdict: REFUSED, done: 0 },
      {
        ...{ name: 'a rate of its rules', verdict: RATE, done: 2 },
        lines: [
          '',
          'acl:',
          '  defer ratelimit = 2 / 1m / per_rcpt / strict',
          '    message = Sender rate $sender_rate / $sender_rate_period',
        ].join('\n'),
      },
    ],
  ],
  [
    openSmtpd,
    [
      { name: 'recipients of a mail', lines: 'smtp limit max-rcpt 2', recipients: 3, verdict: NEXT, done: 0 },
      { name: 'mails of a connection', lines: 'smtp limit max-mails 1', verdict: '', done: 3 },
      { name: 'size', lines: 'smtp max-message-size 100', verdict: REFUSED, done: 0 },
    ],
  ],
]

describe.skipIf(!isWanted).each(limits.map(([mta, list]) => ({ mta, list, name: mta.name })))(
  '$name',
  ({ mta, list }) => {
    test.each(list)('$name', async ({ lines, recipients = 1, open = 0, verdict, done }) => {
      const { port, process } = await start(mta, lines)
      for (let i = 0; i < open; i++) {
        const socket = connect(port, '127.0.0.1')
        closers.push(() => socket.destroy())
        // Its greeting: now it counts.
        await once(socket, 'data')
      }
      const ends = []
      for (let i = 0; i < 3; i++) ends.push(await process(jobTo(recipients)).catch((error: Error) => error))
      const errors = ends.filter((end) => end instanceof Error)
      expect(ends.length - errors.length, errors.map(String).join('\n')).toBe(done)
      const causes = errors.map((error) => (error instanceof UnrecoverableError ? (error.cause as Error).cause : error))
      for (const cause of causes) expect(verdict.split('; ')).toContain(verdictOf(cause))
      expect(errors.every((error) => error instanceof UnrecoverableError === (verdict === REFUSED))).toBe(true)
    })
  },
)

test.skipIf(!isWanted).each([
  { mta: postfix, lines: 'smtpd_recipient_limit = 2' },
  { mta: exim, lines: 'recipients_max = 2' },
  { mta: openSmtpd, lines: 'smtp limit max-rcpt 2' },
])('$mta.name: a mail reaches more recipients than it may have at once, each once', async ({ mta, lines }) => {
  const { process } = await start(mta, lines)
  await withQueue(redis, `parts-${mta.packageName}`, async (queue) => {
    const worker = new ShapedWorker(queue.name, process as never, {
      ...{ connection: redis.connection, prefix: redis.prefix, shape: { rate: '100/s' }, feedback: profiles.smtp },
    })
    closers.push(() => worker.close())
    const steps: unknown[] = []
    worker.on('progress', (_, progress) => steps.push(progress))
    const completed = once(worker, 'completed')
    // No attempts beside the first: what a server takes in parts uses none up.
    await queue.add('mail', mailTo(RECIPIENTS))
    const [, result] = (await completed) as [unknown, SentMail]
    expect(result).toMatchObject({ accepted: RECIPIENTS, rejected: [] })
    expect(steps).toEqual([{ accepted: RECIPIENTS.slice(0, 2), rejected: [], pending: RECIPIENTS.slice(2) }])
  })
})

test.skipIf(!isWanted)('mails above the rate of Postfix hold the fleet, and none is put off for long', async () => {
  const MAILS = 200
  const PER_WINDOW = 40
  const WINDOW_S = 5
  const { process } = await start(
    postfix,
    `anvil_rate_time_unit = ${WINDOW_S}s\nsmtpd_client_message_rate_limit = ${PER_WINDOW}`,
  )
  await withQueue(redis, 'postfix', async (queue) => {
    await queue.addBulk(Array.from({ length: MAILS }, () => ({ name: 'mail', data: mailTo(['a@example.org']) })))
    const changes: FeedbackChange[] = []
    const verdicts: JobVerdict[] = []
    let completed = 0
    let starts = 0
    const worker = new ShapedWorker('postfix', process as never, {
      ...{ connection: redis.connection, prefix: redis.prefix, shape: { rate: '20/s' }, concurrency: 10 },
      ...{ feedback: profiles.smtp, adapt: true },
    })
    closers.push(() => worker.close())
    worker.on('feedback', (change) => changes.push(change))
    worker.on('verdict', (_, verdict) => verdicts.push(verdict))
    worker.on('departed', () => starts++)
    const failures: string[] = []
    worker.on('failed', (_, error) => failures.push(error.message))
    const startMs = performance.now()
    await new Promise<void>((resolve) => worker.on('completed', () => ++completed === MAILS && resolve()))
    const tookS = (performance.now() - startMs) / 1000
    const atBestS = (MAILS / PER_WINDOW - 1) * WINDOW_S
    console.log(`${MAILS} mails took ${tookS.toFixed(0)} s, at best ${atBestS} s; ${starts - MAILS} refused`)
    expect(failures).toEqual([])
    expect(verdicts).toEqual([])
    expect(changes[0]?.reason).toMatch(/^SMTP, rate: .*450 4\.7\.1 Error: too much mail from 127\.0\.0\.1$/)
  })
})
