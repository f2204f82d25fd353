import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createTransport } from 'nodemailer'
import { Pool } from 'pg'
import { afterEach, expect, test } from 'vitest'
import { profiles } from '../../src/egress/index.ts'
import type { FeedbackChange } from '../../src/index.ts'
import { startPostgres } from '../../workers/services/postgres.ts'
import { startMailServer } from '../feedback/fleet/support/mail-server.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

// Ten jobs at the head of a queue that are refused whenever they are called, by real servers, and a hundred behind them.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const BAD = 10
const GOOD = 100
const PER_SECOND = 20
/** The pauses are what keeps the good jobs waiting: all together, ms. One in ten probes or so meets another bad job. */
const MOST_PAUSED_MS = 6000

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

type Call = (isBad: boolean) => Promise<unknown>

async function http(): Promise<Call> {
  const server = createServer(({ url }, response) => response.writeHead(url === '/bad' ? 503 : 200).end('answered'))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closers.push(() => {
    server.close()
    server.closeAllConnections()
  })
  const { port } = server.address() as AddressInfo
  return async (isBad) => {
    const response = await fetch(`http://127.0.0.1:${port}/${isBad ? 'bad' : 'good'}`)
    const data = await response.text()
    if (!response.ok) throw Object.assign(new Error(`answered ${response.status}`), { response, data })
    return data
  }
}

async function postgres(): Promise<Call> {
  const server = await startPostgres()
  const pool = new Pool({ connectionString: server.url, max: 40, statement_timeout: 100 })
  closers.push(
    () => server.stop(),
    () => pool.end(),
  )
  return (isBad) => pool.query(isBad ? 'select pg_sleep(60)' : 'select 1')
}

async function smtp(): Promise<Call> {
  const closing = { code: 421, message: '4.7.0 Try again later, closing connection' }
  const server = await startMailServer({
    recipient: async (address) => (address.startsWith('bad') ? closing : undefined),
  })
  const transport = createTransport({ url: server.url })
  return (isBad) =>
    transport.sendMail({ from: 'shop@example.com', to: `${isBad ? 'bad' : 'good'}@example.org`, text: 'Thank you' })
}

const FORMS: readonly (readonly [string, keyof typeof profiles, () => Promise<Call>])[] = [
  ['a path that answers 503', 'http', http],
  ['statements that meet the time limit', 'postgres', postgres],
  ['recipients that get 421', 'smtp', smtp],
]
const CASES = FORMS.flatMap(([name, profile, open]) =>
  [1, 4].flatMap((workers) => [true, false].map((adapt) => ({ name, profile, open, workers, adapt }))),
)

test.each(CASES)('$name, $workers workers, adapt $adapt: the jobs behind them are not held up', async (run) => {
  const call = await run.open()
  const queue = shop.queue({ rate: `${PER_SECOND}/s` })
  await queue.addBulk(
    Array.from({ length: BAD + GOOD }, (_, i) => ({ name: i < BAD ? 'bad' : 'good', data: {}, opts: { attempts: 1 } })),
  )
  const options = { feedback: profiles[run.profile], adapt: run.adapt, concurrency: 10 }
  const workers = Array.from({ length: run.workers }, () =>
    shop.worker(queue, ({ name }) => call(name === 'bad'), options),
  )
  const completed = eventsOf<{ name: string; timestamp: number; finishedOn: number }>('completed', ...workers)
  const changes = eventsOf<FeedbackChange>('feedback', ...workers)
  await completed.reach(GOOD)
  const addedMs = Math.min(...completed.all.map(({ timestamp }) => timestamp))
  const tookMs = Math.max(...completed.all.map(({ finishedOn }) => finishedOn)) - addedMs
  const pauses = changes.all.filter(({ kind }) => kind === 'pause')
  const pausedMs = pauses.reduce((sum, { at, until }) => sum + Number(until) - Number(at), 0)
  console.log(
    `${run.name}, ${run.workers} workers, adapt ${run.adapt}: ${GOOD} jobs after ${(tookMs / 1000).toFixed(1)} s, ` +
      `${pauses.length} pauses of ${(pausedMs / 1000).toFixed(1)} s`,
  )
  expect(pausedMs).toBeLessThanOrEqual(MOST_PAUSED_MS)
  expect(completed.all.map(({ name }) => name)).not.toContain('bad')
})
