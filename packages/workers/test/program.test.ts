import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Pool } from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { ShapedQueue } from '../../../src/index.ts'
import { useProcesses } from '../../../test/support/processes.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { findFreePort } from '../../../workers/services/free-port.ts'
import { type PostgresService, startPostgres } from '../../../workers/services/postgres.ts'
import { type SmtpSink, startSmtpSink } from '../../../workers/services/smtp.ts'
import { departuresIn, withQueue } from './queues.ts'
import { mail } from './refused-mails.ts'

const EMAIL = new URL('../../../workers/email.ts', import.meta.url)
const DB_WRITES = new URL('../../../workers/db-writes.ts', import.meta.url)
const LOCK = 4711
const WAIT = { timeout: 60_000, interval: 20 }

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const directory = mkdtempSync(join(tmpdir(), 'sluice-programs-'))
const statementsFile = join(directory, 'statements.json')

let postgres: PostgresService
let admin: Pool
let sink: SmtpSink

beforeAll(async () => {
  const sql = 'select pg_advisory_xact_lock($1)'
  const statement = { sql, parameters: [{ name: 'lock', type: 'integer' }] }
  writeFileSync(statementsFile, JSON.stringify({ statements: { 'wait-for-lock': statement } }))
  postgres = await startPostgres()
  admin = new Pool({ connectionString: postgres.url })
  sink = await startSmtpSink()
})

afterAll(async () => {
  await sink.stop()
  await admin.end()
  await postgres.stop()
  rmSync(directory, { recursive: true })
})

const logOf = (queue: string) => join(directory, `${queue}.ndjson`)

const settings = (queue: string) => ({
  REDIS_URL: redis.url,
  PREFIX: redis.prefix,
  QUEUE: queue,
  RATE: '1000/s',
  CONCURRENCY: '1',
  SMTP_URL: sink.url,
  DATABASE_URL: postgres.url,
  STATEMENTS: statementsFile,
  DEPARTURE_LOG: logOf(queue),
})

/** Holds the lock that the statement waits for, so that its job runs until the lock is released. */
async function holdLock(): Promise<{ isAwaited(): Promise<boolean>; release(): Promise<void> }> {
  const client = await admin.connect()
  await client.query('select pg_advisory_lock($1)', [LOCK])
  return {
    async isAwaited() {
      const { rowCount } = await client.query("select 1 from pg_locks where locktype = 'advisory' and not granted")
      return rowCount === 1
    },
    async release() {
      await client.query('select pg_advisory_unlock($1)', [LOCK])
      client.release()
    },
  }
}

/** Starts the database program on a queue of three jobs, the first of which runs until the lock is released. */
async function startHeld(queue: ShapedQueue, env: Record<string, string> = {}) {
  const lock = await holdLock()
  const data = { statement: 'wait-for-lock', parameters: { lock: LOCK } }
  for (const jobId of ['first', 'second', 'third']) await queue.add('write', data, { jobId })
  const program = processes.fork(DB_WRITES, { env: { ...settings(queue.name), ...env } })
  await expect.poll(() => lock.isAwaited(), WAIT).toBe(true)
  return { lock, program }
}

describe('stopping', () => {
  test('SIGTERM lets the running job finish, leaves the others, and ends with 0', async () => {
    await withQueue(redis, 'stop', async (queue) => {
      const { lock, program } = await startHeld(queue)
      const exited = program.kill('SIGTERM')
      await expect.poll(() => program.output, WAIT).toContain('"signal":"SIGTERM"')
      await lock.release()
      expect(await exited, program.output).toEqual({ code: 0, signal: null })
      expect(await queue.getJobCounts('completed', 'wait', 'active', 'failed')).toEqual({
        completed: 1,
        wait: 2,
        active: 0,
        failed: 0,
      })
      expect((await queue.getWaiting()).map(({ id }) => id)).toEqual(['second', 'third'])
      expect(departuresIn(logOf('stop')).map(({ jobId, attempt }) => [jobId, attempt])).toEqual([['first', 1]])
    })
  })

  test('a second signal ends it at once with 1', async () => {
    await withQueue(redis, 'stop-now', async (queue) => {
      const { lock, program } = await startHeld(queue)
      const exited = program.kill('SIGTERM')
      await expect.poll(() => program.output, WAIT).toContain('"signal":"SIGTERM"')
      program.kill('SIGTERM')
      expect(await exited).toEqual({ code: 1, signal: null })
      await lock.release()
    })
  })

  test('a job that does not finish in time ends it with 1 and one line', async () => {
    await withQueue(redis, 'stop-late', async (queue) => {
      const { lock, program } = await startHeld(queue, { SHUTDOWN_TIMEOUT_MS: '1000' })
      expect(await program.kill('SIGTERM')).toEqual({ code: 1, signal: null })
      expect(program.output).toContain('sluice db-writes: jobs did not finish within 1000 ms')
      await lock.release()
    })
  })
})

test('the email program sends, says how it is, and stops', async () => {
  await withQueue(redis, 'emails', async (queue) => {
    const port = await findFreePort()
    await queue.addBulk([1, 2, 3].map((number) => ({ name: 'mail', data: { ...mail, subject: `mail ${number}` } })))
    const program = processes.fork(EMAIL, { env: { ...settings('emails'), HEALTH_PORT: `${port}` } })
    await expect
      .poll(() => sink.mails.map(({ subject }) => subject).sort(), WAIT)
      .toEqual(['mail 1', 'mail 2', 'mail 3'])
    for (const path of ['live', 'ready']) {
      const response = await fetch(`http://127.0.0.1:${port}/${path}`)
      expect(response.status, await response.text()).toBe(200)
    }
    expect(await program.kill('SIGINT'), program.output).toEqual({ code: 0, signal: null })
    const ids = departuresIn(logOf('emails')).map(({ effectId }) => `<${effectId}@example.com>`)
    expect(ids.sort()).toEqual(sink.mails.map(({ messageId }) => messageId).sort())
  })
})

test('a mail that cannot be sent fails at once, without its data in the reason', async () => {
  await withQueue(redis, 'refused', async (queue) => {
    const job = await queue.add('mail', { ...mail, bcc: 'CANARY@example.net' }, { attempts: 5 })
    const program = processes.fork(EMAIL, { env: settings('refused') })
    await expect.poll(() => job.isFailed(), WAIT).toBe(true)
    expect(await program.kill('SIGTERM')).toEqual({ code: 0, signal: null })
    const failed = await queue.getJob(job.id ?? '')
    expect(failed?.attemptsMade).toBe(1)
    expect(failed?.failedReason).toMatch(/^the mail was not accepted: expected only from, to/)
    expect(failed?.failedReason).not.toContain('CANARY')
    expect(program.output).not.toContain('CANARY')
  })
})

describe('not starting', () => {
  const unused = 'redis://:CANARY@127.0.0.1:1'

  test('--help names the settings and ends with 0', async () => {
    const program = processes.fork(EMAIL, { args: ['--help'] })
    expect(await program.exited).toEqual({ code: 0, signal: null })
    for (const variable of ['REDIS_URL', 'SMTP_URL', 'QUEUE', 'RATE', 'HEALTH_PORT']) {
      expect(program.output).toContain(variable)
    }
  })

  test('wrong settings end it with 2 and name everything that is wrong', async () => {
    const env = { ...settings('settings'), REDIS_URL: '', RATE: 'CANARY/s', CONCURRENCY: 'many' }
    const program = processes.fork(DB_WRITES, { env })
    expect(await program.exited).toEqual({ code: 2, signal: null })
    expect(program.output).toMatch(/3 settings are wrong:\n {2}REDIS_URL: .*\n {2}RATE: .*\n {2}CONCURRENCY: .*\n$/)
  })

  test.each([
    [
      'Redis',
      EMAIL,
      { REDIS_URL: unused },
      /^sluice email: cannot use Redis at 127\.0\.0\.1:1: connect ECONNREFUSED.*\n$/,
    ],
    [
      'SMTP server',
      EMAIL,
      { SMTP_URL: 'smtp://user:CANARY@127.0.0.1:1' },
      /^sluice email: cannot use the SMTP server at 127\.0\.0\.1:1: connect ECONNREFUSED.*\n$/,
    ],
    [
      'PostgreSQL',
      DB_WRITES,
      { DATABASE_URL: 'postgres://user:CANARY@127.0.0.1:1/db' },
      /^sluice db-writes: cannot use PostgreSQL at 127\.0\.0\.1:1: connect ECONNREFUSED.*\n$/,
    ],
  ])('without its %s it ends with 1 and one line', async (_, script, env, line) => {
    const program = processes.fork(script, { env: { ...settings('missing'), ...env } })
    expect(await program.exited).toEqual({ code: 1, signal: null })
    expect(program.output).toMatch(line)
    expect(program.output).not.toContain('CANARY')
  })
})
