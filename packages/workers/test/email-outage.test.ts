import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { inspect } from 'node:util'
import { SMTPServer } from 'smtp-server'
import { afterEach, expect, test } from 'vitest'
import { type Feedback, profiles } from '../../../src/egress/index.ts'
import type { FeedbackChange } from '../../../src/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { eventsOf, jobs, Workshop } from '../../../test/worker/support.ts'
import { findFreePort } from '../../../workers/services/free-port.ts'
import { createEmailProcessor, type EmailJob } from '../src/email/processor.ts'
import { createMailTransport } from '../src/email/transport.ts'
import { mail } from './refused-mails.ts'

// A mail server that can not be reached, or goes away in the middle of a mail.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

function processorOf(url: string, timeoutMs = 5000) {
  const transport = createMailTransport({ url, timeoutMs })
  closers.push(() => transport.close())
  return createEmailProcessor(transport, { prefix: redis.prefix, allowMultipleRecipients: false })
}

const job = { id: '1', queueName: 'emails', timestamp: 1, data: mail, progress: 0 } as unknown as EmailJob

/** What the profile finds in the end of a mail. */
async function found(url: string): Promise<readonly Feedback[]> {
  const threw = await processorOf(url)(job).then(
    () => expect.unreachable('the mail was sent'),
    (error: unknown) => error,
  )
  return profiles.smtp.listen({ threw }, { receivedAtMs: 0, latencyMs: 1 }).map(({ feedback }) => feedback)
}

async function listening(server: Server): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => sockets.add(socket.on('error', () => {})))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closers.push(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return (server.address() as AddressInfo).port
}

/** What the server waits for before it goes away, or 'never'; at 'silence' it has the message, and says nothing more. */
type Stage = 'connection' | 'EHLO' | 'MAIL' | 'RCPT' | 'DATA' | '.' | 'silence' | 'never'

const REPLIES: Readonly<Record<string, string>> = { EHLO: '250 mx', DATA: '354 go on', QUIT: '221 bye' }

/**
 * @param stageOf of each connection, counted from 0
 * @param replyTo another reply than 250
 */
async function startServer(
  stageOf: (connection: number) => Stage,
  replyTo: (line: string) => string | undefined = () => undefined,
): Promise<{ url: string; taken: () => number; received: readonly string[] }> {
  let connections = 0
  let taken = 0
  /** The Message-ID of each message that came as a whole. */
  const received: string[] = []
  const server = createServer((socket) => {
    const stage = stageOf(connections++)
    if (stage === 'connection') return socket.destroy()
    socket.write('220 mx\r\n')
    let text = ''
    let inMessage = false
    let messageId = ''
    socket.on('data', (chunk) => {
      text += chunk
      for (let end = text.indexOf('\r\n'); end >= 0; end = text.indexOf('\r\n')) {
        const line = text.slice(0, end)
        text = text.slice(end + 2)
        if (inMessage && line !== '.') {
          messageId = /<[\da-f]{64}@\S+>/.exec(line)?.[0] ?? messageId
          continue
        }
        const verb = (line.split(/[ :]/, 1)[0] as string).toUpperCase()
        if (verb === '.') received.push(messageId)
        if (verb === stage) return socket.destroy()
        if (verb === '.' && stage === 'silence') return
        inMessage = verb === 'DATA'
        if (verb === '.') taken += 1
        socket.write(`${replyTo(line) ?? REPLIES[verb] ?? '250 ok'}\r\n`)
      }
    })
  })
  return { url: `smtp://127.0.0.1:${await listening(server)}`, taken: () => taken, received }
}

async function startTls(options: object): Promise<number> {
  const server = new SMTPServer({ disableReverseLookup: true, closeTimeout: 1, ...options })
  server.on('error', () => {})
  server.listen(0, '127.0.0.1')
  await once(server.server, 'listening')
  closers.push(() => new Promise<void>((resolve) => server.close(resolve)))
  return (server.server.address() as AddressInfo).port
}

test.each([
  ['nothing listens', async () => `smtp://127.0.0.1:${await findFreePort()}`],
  ['its name is unknown', async () => 'smtp://mx.invalid:25'],
  ['it has a certificate that is not trusted', async () => `smtps://127.0.0.1:${await startTls({ secure: true })}`],
  ['it upgrades to one that is not trusted', async () => `smtp://127.0.0.1:${await startTls({})}`],
  ['it goes away instead of a handshake', async () => (await startServer(() => 'connection')).url.replace(':', 's:')],
  ['it speaks no TLS', async () => (await startServer(() => 'never')).url.replace(':', 's:')],
])('a server that can not be reached is a destination that is down: %s', async (_, urlOf) => {
  expect(await found(await urlOf())).toMatchObject([{ kind: 'pause', hard: true, about: 'destination' }])
})

test.each<[Stage]>([['connection'], ['EHLO'], ['MAIL'], ['RCPT'], ['DATA']])(
  'a server that goes away at %s has not taken the mail: it may be sent again',
  async (stage) => {
    const [pause, ...more] = await found((await startServer(() => stage)).url)
    expect(pause).toMatchObject({ kind: 'pause', hard: true })
    expect(pause).not.toHaveProperty('mayBeDone')
    expect(more).toEqual([])
  },
)

test('a server that goes away after the message may have taken it', async () => {
  expect(await found((await startServer(() => '.')).url)).toMatchObject([{ kind: 'pause', mayBeDone: true }])
})

test.each<[string, Stage]>([
  ['goes away', '.'],
  ['stops answering', 'silence'],
])(
  'a server that %s after the message: a mail that may be tried once is not sent again, another is, under its Message-ID',
  async (_, stage) => {
    for (const attempts of [1, 2]) {
      const server = await startServer((connection) => (connection === 0 ? stage : 'never'))
      const queue = shop.queue({ rate: '500/s' })
      await queue.add('mail', mail, { attempts })
      const worker = shop.worker(queue, processorOf(server.url, 4000) as never, { feedback: profiles.smtp })
      const ends = eventsOf('completed', worker)
      const failures = eventsOf<{ attemptsMade: number }>('failed', worker)
      if (attempts === 1) {
        await failures.reach(1)
        // What comes after it proves that it was left.
        await queue.add('mail', { ...mail, subject: 'next' })
        await ends.reach(1)
        expect(failures.all).toMatchObject([{ attemptsMade: 1 }])
        expect([server.received.length, new Set(server.received).size]).toEqual([2, 2])
      } else {
        await ends.reach(1)
        expect([server.received.length, new Set(server.received).size]).toEqual([2, 1])
        expect(server.received[0]).toMatch(/^<[\da-f]{64}@/)
      }
      expect(server.taken()).toBe(1)
    }
  },
)

test('mails that may be tried once outlast connections that break before the message is sent', async () => {
  const MAILS = 8
  const stages: Stage[] = ['RCPT', 'DATA', 'MAIL', 'connection', 'EHLO']
  const server = await startServer((connection) => stages[connection] ?? 'never')
  const queue = shop.queue({ rate: '500/s' })
  await queue.addBulk(jobs(MAILS).map((one) => ({ ...one, data: mail })))
  const worker = shop.worker(queue, processorOf(server.url) as never, { feedback: profiles.smtp, concurrency: 4 })
  const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  await completed.reach(MAILS)
  expect(failed.all).toEqual([])
  expect(completed.all.map(({ attemptsMade }) => attemptsMade)).toEqual(Array(MAILS).fill(1))
  expect(server.taken()).toBe(MAILS)
})

test('a domain that always refuses is told apart from others, with no address in the error', async () => {
  const { url } = await startServer(
    () => 'never',
    (line) => (line.startsWith('RCPT') && line.includes('@bad.example') ? '452 4.3.1 full' : undefined),
  )
  const run = (to: string) => processorOf(url)({ ...job, data: { ...mail, to } } as EmailJob)
  const targetOf = (outcome: { threw: unknown } | { returned: unknown }) =>
    profiles.smtp.listen(outcome, { receivedAtMs: 0, latencyMs: 1 }).map(({ target }) => target)
  const sent = await run('a@good.example')
  const refused = await run('a@bad.example').catch((error: unknown) => error)
  expect(targetOf({ returned: sent })).toEqual(['@good.example'])
  expect(targetOf({ threw: refused })).toEqual(['@bad.example'])
  expect(inspect(refused, { depth: 9, showHidden: true })).not.toContain('bad.example')
})

test('half of the mails go to a domain that always refuses: the others wait for nothing', async () => {
  const { url, taken } = await startServer(
    () => 'never',
    (line) => (line.startsWith('RCPT') && line.includes('@bad.example') ? '452 4.3.1 full' : undefined),
  )
  const GOOD = 60
  const queue = shop.queue({ rate: '100/s' })
  const to = (i: number) => (i > 10 && i % 2 === 0 ? 'a@bad.example' : 'a@good.example')
  const mails = Array.from({ length: 2 * GOOD - 10 }, (_, i) => ({ name: 'mail', data: { ...mail, to: to(i) } }))
  await queue.addBulk(mails)
  const worker = shop.worker(queue, processorOf(url) as never, { feedback: profiles.smtp, concurrency: 4 })
  const changes = eventsOf<FeedbackChange>('feedback', worker)
  await eventsOf('completed', worker).reach(mails.filter(({ data }) => data.to === 'a@good.example').length)
  expect(changes.all.filter(({ kind }) => kind === 'pause')).toEqual([])
  expect(taken()).toBe(mails.filter(({ data }) => data.to === 'a@good.example').length)
})
