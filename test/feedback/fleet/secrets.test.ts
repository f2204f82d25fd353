import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { serve } from '../../../packages/dashboard/test/server/support.ts'
import { useServer } from '../../../packages/fetch/test/server.ts'
import { createMetrics } from '../../../packages/metrics/src/index.ts'
import type { ShapedQueue } from '../../../src/index.ts'
import { type PostgresService, startPostgres } from '../../../workers/services/postgres.ts'
import { useProcesses } from '../../support/processes.ts'
import { useRedis } from '../../support/redis.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { Workshop } from '../../worker/support.ts'
import { startMailServer } from './support/mail-server.ts'

const CANARY = 'SECRET_CANARY'
const WAIT = { timeout: 60_000, interval: 20 }
const ATTEMPTS = { attempts: 2, backoff: 1 }

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const shop = new Workshop(redis)
const http = useServer()
let postgres: PostgresService

beforeAll(async () => {
  postgres = await startPostgres()
  const admin = new Client({ connectionString: postgres.url })
  await admin.connect()
  await admin.query('create table orders (id text primary key, amount integer check (amount > 0))')
  await admin.query(`create function slow_down(text) returns text language plpgsql as
    $$ begin raise exception 'no connection for %', $1 using errcode = '53300'; end $$`)
  await admin.end()
})
afterAll(() => postgres.stop())

function withPassword(url: string): string {
  const secret = new URL(url)
  secret.password = `${CANARY}_PASSWORD`
  return secret.href
}

/** Runs a program until so many jobs have failed and so many changes were told. @returns whatever is to be seen of it */
async function tracesOf(script: string, queue: ShapedQueue, env: Record<string, string>, failures: number) {
  const program = processes.fork(new URL(`../../../workers/${script}.ts`, import.meta.url), {
    env: { REDIS_URL: redis.url, PREFIX: redis.prefix, QUEUE: queue.name, RATE: '500/s', LOG_LEVEL: 'trace', ...env },
  })
  await expect.poll(() => queue.getJobCountByTypes('failed'), WAIT).toBe(failures)
  await expect.poll(async () => (await queue.meter()).feedback?.last?.reason, WAIT).toBeDefined()
  const meter = JSON.stringify(await queue.meter())
  expect(await program.kill('SIGTERM'), program.output).toEqual({ code: 0, signal: null })
  const failed = await queue.getFailed()
  const reasons = failed.map(({ failedReason, stacktrace }) => [failedReason, stacktrace])
  const events = await redis.client().xrange(queue.toKey('events'), '-', '+')
  const changes = events.flatMap(([, fields]) => (fields[1] === 'feedback' ? fields : []))
  return {
    ...{ output: program.output, reasons: JSON.stringify(reasons), meter },
    ...{ changes: changes.join(), metrics: await metricsOf(queue), pages: await pagesOf(queue) },
  }
}

async function metricsOf({ name }: ShapedQueue): Promise<string> {
  const metrics = createMetrics({ connection: redis.connection, prefix: redis.prefix, queues: [name] })
  const text = await metrics.text()
  await metrics.close()
  expect(text).toContain(`queue="${name}"`)
  return text
}

/** What the dashboard shows of a queue and of its failed jobs, unless it is told to show their data. */
async function pagesOf(queue: ShapedQueue): Promise<string> {
  const { get } = await serve({ connection: redis.connection, prefix: redis.prefix })
  const failed = await queue.getFailed()
  const base = `api/queues/${queue.name}`
  const paths = [base, `${base}/jobs?state=failed`, ...failed.map(({ id }) => `${base}/jobs/${id}`)]
  const answers = await Promise.all(paths.map((path) => get(path)))
  expect(answers.map(({ status }) => status)).toEqual(paths.map(() => 200))
  return (await Promise.all(answers.map((answer) => answer.text()))).join('\n')
}

/** What was to be seen was seen, and the canary nowhere. */
function expectNoSecret(traces: Awaited<ReturnType<typeof tracesOf>>): void {
  expect(traces.output).toContain('"msg":"feedback"')
  expect(traces.output).toContain('"msg":"failed"')
  expect(traces.changes).toContain('feedback')
  for (const [where, text] of Object.entries(traces)) {
    expect(text.match(new RegExp(`.{0,200}${CANARY}.{0,60}`))?.[0], where).toBeUndefined()
  }
}

// Fault table, row 35.
test('HTTP: a token that the server repeats, and data', async () => {
  const seen = new Set<string>()
  http.answer((request, response) => {
    const [, asked = ''] = request.url?.split('/') ?? []
    const status = asked === '429' && seen.has(asked) ? 200 : Number(asked)
    seen.add(asked)
    const { authorization = '' } = request.headers
    const headers = { 'retry-after': authorization, 'x-request-id': authorization }
    const limit = { ratelimit: `"${authorization}";r=0;t=1`, 'x-ratelimit-resource': authorization }
    response.writeHead(status, { 'content-type': 'application/json', ...headers, ...limit })
    response.end(JSON.stringify({ message: authorization, title: authorization, detail: `${CANARY} ${request.url}` }))
  })
  const targets = join(temporaryFolder(), 'targets.json')
  const headers = { authorization: { env: 'TARGET_TOKEN', prefix: 'Bearer ' } }
  writeFileSync(targets, JSON.stringify({ targets: { here: { baseUrl: http.url, headers } } }))
  const queue = shop.queue()
  const paths = ['200', '400', '500', '403', '429']
  await queue.addBulk(
    paths.map((path) => ({
      ...{ name: 'call', opts: ATTEMPTS },
      data: { target: 'here', path: `/${path}/${CANARY}`, query: { key: CANARY }, text: CANARY },
    })),
  )
  const env = { TARGETS: targets, TARGET_TOKEN: `${CANARY}_TOKEN` }
  expectNoSecret(await tracesOf('http', queue, env, 3))
})

test('email: passwords, mails, and recipients that the server repeats appear nowhere', async () => {
  const replies: Readonly<Record<string, string>> = {
    gone: '5.1.1 <%>: user unknown in local table',
    busy: '4.7.0 too many messages to % from 127.0.0.1',
  }
  const server = await startMailServer({
    login: () => undefined,
    recipient: async (address, { times }) => {
      const [, kind = ''] = address.split('.')
      if (kind === 'busy' && times > 1) return undefined
      const message = replies[kind.split('@')[0] as string]?.replace('%', address)
      return message ? { code: message.startsWith('5') ? 550 : 451, message } : undefined
    },
  })
  const queue = shop.queue()
  await queue.addBulk(
    ['gone', 'busy', 'well'].map((kind) => ({
      ...{ name: 'mail', opts: ATTEMPTS },
      data: { from: 'shop@example.com', to: `RECIPIENT.${kind}@example.org`, subject: CANARY, text: CANARY },
    })),
  )
  const traces = await tracesOf('email', queue, { SMTP_URL: withPassword(server.url) }, 1)
  expectNoSecret(traces)
  expect(traces.reasons).toContain('(550): ')
  expect(traces.reasons).toContain('550 5.1.1 <…>: user unknown in local table')
  expect(traces.meter).toContain('too many messages to … from')
  expect(Object.values(traces).join()).not.toContain('RECIPIENT')
})

test('database: a password, and rows that the server repeats', async () => {
  const statements = join(temporaryFolder(), 'statements.json')
  const id = { name: 'id', type: 'string' }
  const insert = { sql: 'insert into orders values ($1, 1), ($1, 2)', parameters: [id] }
  const cast = { sql: 'insert into orders values ($1, $1::text::integer)', parameters: [id] }
  const check = { sql: 'insert into orders values ($1, -1)', parameters: [id] }
  const refuse = { sql: 'insert into orders values (slow_down($1), 1)', parameters: [id] }
  writeFileSync(statements, JSON.stringify({ statements: { insert, cast, check, refuse } }))
  const queue = shop.queue()
  await queue.addBulk(
    ['insert', 'cast', 'check', 'refuse'].map((statement) => ({
      ...{ name: 'write', opts: ATTEMPTS },
      data: { statement, parameters: { id: `${CANARY}-${statement}` } },
    })),
  )
  const env = { DATABASE_URL: withPassword(postgres.url), STATEMENTS: statements }
  expectNoSecret(await tracesOf('db-writes', queue, env, 3))
})
