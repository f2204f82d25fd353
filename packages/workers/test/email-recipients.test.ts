import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { UnrecoverableError } from 'bullmq'
import fc from 'fast-check'
import { SMTPServer } from 'smtp-server'
import { afterEach, expect, test } from 'vitest'
import { profiles } from '../../../src/egress/index.ts'
import { ShapedWorker } from '../../../src/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { createEmailProcessor, type EmailJob, type SentMail } from '../src/email/processor.ts'
import { createMailTransport, type MailTransport } from '../src/email/transport.ts'
import { withQueue } from './queues.ts'
import { mail } from './refused-mails.ts'

const redis = useRedis(import.meta.url)
const several = { prefix: redis.prefix, allowMultipleRecipients: true }
const TEMPORARY = [450, '4.2.1 mailbox of a@b.example busy'] as const

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

type Reply = readonly [code: number, text: string]

/** A server that answers each RCPT TO as it is told, and the recipients of each mail that it took. */
async function startServer(replyTo: (recipient: string) => Reply | undefined) {
  const taken: string[][] = []
  const server = new SMTPServer({
    ...{ disabledCommands: ['STARTTLS', 'AUTH'], disableReverseLookup: true, closeTimeout: 1 },
    onRcptTo({ address }, _session, answer) {
      const [responseCode, text] = replyTo(address) ?? []
      answer(responseCode === undefined ? null : Object.assign(new Error(text), { responseCode }))
    },
    onData(stream, session, answer) {
      stream.resume().on('end', () => {
        taken.push(session.envelope.rcptTo.map(({ address }) => address))
        answer()
      })
    },
  })
  server.on('error', () => {})
  server.listen(0, '127.0.0.1')
  await once(server.server, 'listening')
  closers.push(() => new Promise<void>((resolve) => server.close(resolve)))
  const { port } = server.server.address() as AddressInfo
  const transport = createMailTransport({ url: `smtp://127.0.0.1:${port}`, timeoutMs: 20_000 })
  closers.push(() => transport.close())
  return { taken, transport }
}

/** A job that keeps its progress from one attempt to the next, as Redis does. */
function keptJob(data: unknown): EmailJob {
  const job = {
    ...{ id: '1', queueName: 'emails', timestamp: 1_700_000_000_000, data: data as EmailJob['data'], progress: 0 },
    async updateProgress(progress: unknown) {
      job.progress = JSON.parse(JSON.stringify(progress)) as number
    },
  }
  return job
}

test('a recipient that is refused for now gets the mail later, and the others get no second copy', async () => {
  let refuses = true
  const { taken, transport } = await startServer((recipient) =>
    refuses && recipient.startsWith('cc') ? TEMPORARY : undefined,
  )
  const job = keptJob({ ...mail, cc: 'cc@example.org' })
  const attempt = () => createEmailProcessor(transport, several)(job)
  await expect(attempt()).rejects.toMatchObject({
    message: expect.stringMatching(/^1 of 2 recipients do not have the mail yet: .*450 4\.2\.1 mailbox of … busy$/),
    ...{ responseCode: 450, code: 'EENVELOPE', command: 'RCPT TO' },
  })
  expect(job.progress).toEqual({ accepted: ['b@example.org'], rejected: [], pending: ['cc@example.org'] })
  refuses = false
  expect(await attempt()).toMatchObject({ accepted: ['b@example.org', 'cc@example.org'], rejected: [] })
  expect(taken).toEqual([['b@example.org'], ['cc@example.org']])
})

test('the worker stores who has the mail, tells it, and sends it again to the rest alone', async () => {
  let refusals = 0
  const { taken, transport } = await startServer((recipient) => {
    if (recipient.startsWith('gone')) return [550, '5.1.1 no such mailbox']
    return recipient.startsWith('busy') && ++refusals < 3 ? TEMPORARY : undefined
  })
  await withQueue(redis, 'partly', async (queue) => {
    const worker = new ShapedWorker('partly', createEmailProcessor(transport, several) as never, {
      ...{ connection: redis.connection, prefix: redis.prefix, shape: { rate: '1000/s' }, feedback: profiles.smtp },
    })
    closers.push(() => worker.close())
    const told: unknown[] = []
    worker.on('progress', (_, progress) => told.push(progress))
    const to = 'b@example.org, busy@example.org, gone@example.org'
    const completed = once(worker, 'completed')
    const job = await queue.add('mail', { ...mail, to }, { attempts: 5, backoff: { type: 'fixed', delay: 1 } })
    const [, result] = (await completed) as [unknown, SentMail]
    const gone = { recipient: 'gone@example.org', reply: '550 5.1.1 no such mailbox' }
    expect(result).toMatchObject({ accepted: ['b@example.org', 'busy@example.org'], rejected: [gone] })
    expect(taken).toEqual([['b@example.org'], ['busy@example.org']])
    expect(told).toEqual([
      { accepted: ['b@example.org'], rejected: [gone], pending: ['busy@example.org'] },
      { accepted: ['b@example.org', 'busy@example.org'], rejected: [gone], pending: [] },
    ])
    expect((await queue.getJob(job.id as string))?.attemptsMade).toBe(3)
  })
})

test('the domain of a recipient may be an international one', async () => {
  const { taken, transport } = await startServer((recipient) => (recipient.startsWith('cc') ? TEMPORARY : undefined))
  const job = keptJob({ ...mail, to: 'Info@BÜCHER.example, x@bücher.example', cc: 'cc@bücher.example' })
  await expect(createEmailProcessor(transport, several)(job)).rejects.toThrow('1 of 3 recipients')
  const at = 'xn--bcher-kva.example'
  expect(taken).toEqual([['Info@bücher.example', 'x@bücher.example']])
  expect(job.progress).toMatchObject({ accepted: [`Info@${at}`, `x@${at}`], pending: [`cc@${at}`] })
})

test('a refusal of some that speaks of the quota of the sender is no final one', async () => {
  const { transport } = await startServer((recipient) =>
    recipient.startsWith('cc') ? [550, '5.4.5 Daily user sending limit exceeded'] : undefined,
  )
  const job = keptJob({ ...mail, cc: 'cc@example.org' })
  const error = await createEmailProcessor(transport, several)(job).catch((came: Error) => came)
  expect(error).not.toBeInstanceOf(UnrecoverableError)
  expect(error).toMatchObject({ responseCode: 550 })
  expect(job.progress).toMatchObject({ pending: ['cc@example.org'] })
})

const NAMES = ['a', 'b', 'c', 'd'].map((name) => `${name}@example.org`)
type Ending = 'taken' | 'later' | 'never'

/** What nodemailer does: each recipient is answered by itself, then the mail, and a worker may die after either. */
function fakeTransport(rounds: { rcpt: Ending[]; data: Ending }[], copies: Map<string, number>) {
  const error = (code: number, fields: object) =>
    Object.assign(new Error(`refused: ${code} no`), {
      ...{ code: 'EENVELOPE', command: 'RCPT TO', responseCode: code, response: `${code} no`, permanent: code >= 500 },
      ...fields,
    })
  const codes = { later: 451, never: 550 }
  return {
    async sendMail({ envelope }: { envelope: { to: string[] } }) {
      const { rcpt, data } = rounds.shift() ?? { rcpt: [], data: 'taken' }
      const endings = envelope.to.map((recipient) => [recipient, rcpt[NAMES.indexOf(recipient)] ?? 'taken'] as const)
      const accepted = endings.flatMap(([recipient, ending]) => (ending === 'taken' ? [recipient] : []))
      const rejectedErrors = endings.flatMap(([recipient, ending]) =>
        ending === 'taken' ? [] : [error(codes[ending], { recipient })],
      )
      if (accepted.length === 0) throw error(451, { rejectedErrors })
      if (data !== 'taken') throw error(codes[data], { code: 'EMESSAGE', command: 'DATA' })
      for (const recipient of accepted) copies.set(recipient, (copies.get(recipient) ?? 0) + 1)
      return { accepted, rejected: [], rejectedErrors, response: '250 ok' }
    },
  } as unknown as MailTransport
}

test('whatever is answered and whenever a worker dies: each has one copy at most, and all are settled at the end', async () => {
  const ending = fc.constantFrom<Ending>('taken', 'later', 'later', 'never')
  const round = fc.record({ rcpt: fc.array(ending, { minLength: 4, maxLength: 4 }), data: ending })
  await fc.assert(
    fc.asyncProperty(fc.array(round, { maxLength: 6 }), fc.array(fc.boolean()), async (rounds, deaths) => {
      const copies = new Map<string, number>()
      const process = createEmailProcessor(fakeTransport([...rounds], copies), several)
      const job = keptJob({ ...mail, to: NAMES.slice(0, 2).join(', '), cc: NAMES.slice(2).join(', ') })
      let result: SentMail | undefined
      let final: unknown
      for (let attempt = 0; attempt <= rounds.length + deaths.length && !result && !final; attempt++) {
        const ended = await process(job).catch((error: Error) => error)
        // Between what is stored and the end of the job a worker may die: its result or error is lost.
        if (deaths[attempt] && (ended instanceof Error || ended.rejected.length > 0)) continue
        if (ended instanceof UnrecoverableError) final = ended
        else if (!(ended instanceof Error)) result = ended
      }
      for (const count of copies.values()) expect(count).toBe(1)
      expect(result === undefined).toBe(copies.size === 0)
      if (!result) return
      expect([...result.accepted].sort()).toEqual([...copies.keys()].sort())
      expect([...result.accepted, ...result.rejected.map(({ recipient }) => recipient)].sort()).toEqual(NAMES)
    }),
  )
})
