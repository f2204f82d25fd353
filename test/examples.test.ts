import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { startPostgres } from '../workers/services/postgres.ts'
import { runCommand } from '../workers/services/run-command.ts'
import { compile, useBuiltPackage } from './package/built-package.ts'
import { expect, onTestFinished, test, useConcurrentTests } from './support/concurrent.ts'
import { useRedis } from './support/redis.ts'

const redis = useRedis(import.meta.url)
useConcurrentTests()
const built = useBuiltPackage()

/** Each example has keys of its own. */
const prefixOf = (program: string) => `${redis.prefix}-${program}`

/** Runs an example to its own end. @returns the lines that it printed, warnings included */
function run(cwd: string, ...args: string[]): Promise<string[]> {
  return runWith({}, cwd, ...args)
}

async function runWith(settings: NodeJS.ProcessEnv, cwd: string, ...args: string[]): Promise<string[]> {
  const env = { PATH: process.env.PATH, REDIS_URL: redis.url, PREFIX: prefixOf(args.at(-1) as string), ...settings }
  const output = await runCommand(process.execPath, args, { cwd, env, withStderr: true, timeoutMs: 100_000 })
  return output.trim().split('\n')
}

/** Starts a program that runs until it is told to end. @returns it, and its lines */
function start(cwd: string, program: string, settings: NodeJS.ProcessEnv = {}) {
  const env = { PATH: process.env.PATH, REDIS_URL: redis.url, PREFIX: prefixOf('start'), ...settings }
  const child = spawn(process.execPath, [program], { cwd, env, stdio: ['ignore', 'pipe', 'inherit'] })
  return { child, lines: createInterface({ input: child.stdout })[Symbol.asyncIterator]() }
}

async function stop(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit')
  child.kill('SIGINT')
  await ended
}

/** None but what a limiter charged last, which is kept for a minute. */
async function expectNoKeys(program: string): Promise<void> {
  const keys = await redis.client().keys(`${prefixOf(program)}*`)
  expect(keys.filter((key) => !/:limit:\{\w+\}:last:/.test(key))).toEqual([])
}

test('the ES module refuses what does not fit, waits for places and leaves at its rate', async () => {
  const lines = await run(join(built.folder, 'examples'), 'esm.mjs')
  expect(lines).toEqual([
    expect.stringMatching(/^refused user11@example.com: 10 of 10 wait, come back in \d+ ms$/),
    expect.stringMatching(/^refused user12@example.com: 10 of 10 wait, come back in \d+ ms$/),
    expect.stringMatching(/^12 jobs done, the closest two \d+\.\d{3} ms apart$/),
  ])
  // Slots are told in whole microseconds.
  expect(Number(lines[2]?.split(' ')[6])).toBeGreaterThanOrEqual(49.999)
  await expectNoKeys('esm.mjs')
})

test('calls wait for their own model and plan alone, and a request takes from the same account', async () => {
  const lines = await run(join(built.folder, 'examples'), 'llm.mjs')
  expect(lines).toEqual([
    'three calls at once are allowed, the account has 2397 left',
    // On a busy machine its calls may all have left by then, or wait for the model that others use too.
    expect.stringMatching(/^hobby is held by (plan|tokens|undefined): its 6 calls started within \d+ ms$/),
    expect.stringMatching(/^the 12 calls of acme started within \d+ ms$/),
  ])
  // 200 tokens of the last call beyond a bucket of 400, at 400/s, and 120 for each of the five before it.
  expect(Number(lines[1]?.split(' ').at(-2))).toBeGreaterThanOrEqual(999)
  // How far ahead the jobs of a shared limit were granted is known for a minute.
  for (const key of await redis.client().keys(`${prefixOf('llm.mjs')}:limit:*:switch`)) {
    expect(await redis.client().pttl(key)).toBeGreaterThan(0)
    await redis.client().del(key)
  }
  await expectNoKeys('llm.mjs')
})

test('what Redis holds of a customer is erased, and what it holds of another one stays', async () => {
  expect(await run(join(built.folder, 'examples'), 'erase.mjs')).toEqual([
    'keys with ann@4711.example: 7',
    'erased: 4, then 0',
    'keys with ann@4711.example: 0',
    'jobs of 4712: 3',
  ])
  await expectNoKeys('erase.mjs')
})

test('a customer has quiet hours, and a new domain the quota of its first day', async () => {
  // There it is between 22:00 and 23:00.
  const west = ((new Date().getUTCHours() + 13) % 24) - 11
  const settings = { TIME_ZONE: `Etc/GMT${west > 0 ? `+${west}` : west}` }
  expect(await runWith(settings, join(built.folder, 'examples'), 'quiet-hours.mjs')).toEqual([
    'acme: quiet for 10 h',
    // A busy machine may start a job too late: what goes back so soon after a change is not refunded.
    expect.stringMatching(/^old\.example: day 9 of 20, (6\d|70|71) of 76\/day left$/),
    'new.example: day 1 of 20, 0 of 3/day left',
    '7 emails wait',
  ])
  await expectNoKeys('quiet-hours.mjs')
})

test('an endpoint that refuses holds its own group and no other, and one that was gone gets what it missed', async () => {
  const lines = await run(join(built.folder, 'examples'), 'webhooks.mjs')
  expect(lines).toEqual([
    'held: group busy, for 429 Retry-After 1 s',
    'nothing went to the busy endpoint before its time',
    // A busy machine may take longer for it than the other one is held.
    expect.stringMatching(/^the calm endpoint (did not wait|waited)$/),
    'delivered: 10 and 10',
    'dead letter after 1 attempt: the endpoint answered 410 (410)',
    'replayed: 1, delivered: 2',
  ])
  await expectNoKeys('webhooks.mjs')
})

test('sluice/http takes a job once, refuses what is too much or wrong, and the job is done after all', async () => {
  const lines = await run(join(built.folder, 'examples'), 'http.mjs')
  expect(lines).toEqual([
    'ann, twice: 202, replayed: true',
    expect.stringMatching(/^cy: 429 Quota exceeded, back in \d+ ms or [1-9]\d* s$/),
    'dee: 422 /data/to',
    'search 3: 200 "searches";r=0',
    'search 4: 429 "searches";r=0',
    'cy: completed, mailed cy@example.com',
  ])
  await expectNoKeys('http.mjs')
})

test('a program reads why a job waits, when it will start, what was changed and by whom, and the metrics', async () => {
  const lines = await run(join(built.folder, 'examples'), 'watching.mjs')
  expect(lines).toEqual([
    '10 of 20 wait, held by pause: the printer is out of paper',
    // Fewer, if the pause had ended when the worker was there.
    expect.stringMatching(/^reader-10: \d ahead of it$/),
    '  Jobs leave at 10/s, and those ahead of it cost 1 on average, like the last ones.',
    '  No job is added ahead of it, and no job ahead of it is removed.',
    expect.stringMatching(/^it started \d+ ms off the estimate$/),
    expect.stringMatching(/^it waited \d+ ms: \d+ for rate, \d+ for pause(, \d+ for workers)?$/),
    'last change: pause by ann: the printer is out of paper',
    'sluice_released_total{queue="newsletters"} 10',
  ])
  // Workers hold it where the machine is busy.
  const [waitedMs, rateMs, pauseMs, workersMs = 0] = (lines[5]?.match(/\d+/g) ?? []).map(Number) as [
    number,
    ...number[],
  ]
  expect(pauseMs).toBeGreaterThan(900)
  expect((rateMs ?? 0) + (pauseMs ?? 0) + workersMs).toBeGreaterThan(waitedMs * 0.9)
  await expectNoKeys('watching.mjs')
})

test('many changes make one job: debounced the last one, throttled the first', async () => {
  expect(await run(join(built.folder, 'examples'), 'debounce.mjs')).toEqual([
    '2 jobs for 8 calls',
    'GroupFullError',
    'notify: ann wrote',
    'index: revision 5',
  ])
  await expectNoKeys('debounce.mjs')
})

test('the CommonJS program has a job refused and a job done', async () => {
  expect(await run(join(built.folder, 'examples'), 'commonjs.cjs')).toEqual([
    expect.stringMatching(/^refused: queue "commonjs" is full \(1 of 1\): try again in \d+ ms$/),
    'job report is done: 2026-10',
  ])
  await expectNoKeys('commonjs.cjs')
})

test('the NestJS application runs on the shaped classes: paced, and a flow refused whole', async () => {
  const folder = join(built.folder, 'examples', 'nestjs')
  await compile(folder, ['-p', '.', '--noEmit'])
  const lines = await run(folder, '--import', 'tsx', 'main.ts')
  expect(lines).toEqual([
    'digest of two: accepted',
    expect.stringMatching(/^\d+ mail to ann@example.com$/),
    expect.stringMatching(/^\d+ mail to bo@example.com$/),
    expect.stringMatching(/^\d+ digest to editor@example.com$/),
    'digest of five: 6 jobs at once do not fit into queue "mails", which holds 4: add them in smaller parts',
  ])
  const [first = 0, second = 0, third = 0] = lines.slice(1, 4).map((line) => Number(line.split(' ')[0]))
  expect(Math.min(second - first, third - second)).toBeGreaterThanOrEqual(50)
  await expectNoKeys('main.ts')
})

test('the tutorial: a full queue refuses, and two workers share one rate', async () => {
  const folder = join(built.folder, 'examples', 'start')
  const mailbox = start(folder, 'mailbox.mjs', { SMTP_PORT: '0' })
  const [SMTP_PORT] = (await mailbox.lines.next()).value.match(/\d+$/)
  const offers = await runWith({ PREFIX: prefixOf('start') }, folder, 'signups.mjs')
  expect(offers.filter((line) => /^user\d+: accepted as job \w+, \d+ before it$/.test(line))).toHaveLength(60)
  expect(offers.slice(60)).toEqual([
    expect.stringMatching(/^user61: full, come back in \d+ ms$/),
    expect.stringMatching(/^user62: full, come back in \d+ ms$/),
  ])
  const workers = [1, 2].map(() => start(folder, 'worker.mjs', { SMTP_PORT }))
  for (const { lines } of workers) expect((await lines.next()).value).toBe('worker started')

  const mails: string[][] = []
  while (mails.length < 6) mails.push((await mailbox.lines.next()).value.split(' '))
  expect(mails.map(([, to]) => to).toSorted()).toEqual([1, 2, 3, 4, 5, 6].map((i) => `user${i}@example.com`))
  // Seconds of the minute. Five intervals of 500 ms, less what the first mail may come late.
  const [first = 0, ...others] = mails.map(([at]) => Number(at))
  expect((Number(others.at(-1)) - first + 60) % 60).toBeGreaterThan(1)
  await Promise.all([mailbox, ...workers].map(({ child }) => stop(child)))
  await redis.client().del(...(await redis.client().keys(`${prefixOf('start')}*`)))
})

test('mails keep to a provider by HTTP and by SMTP, and to one that allows less than it says', async () => {
  expect(await run(join(built.folder, 'examples'), 'mail.mjs')).toEqual([
    'asked for 50/s, given 33.3/s',
    expect.stringMatching(/^60 emails over the API, \d refused$/),
    expect.stringMatching(/^30 emails over SMTP, \d refused$/),
    'the queue paused: 429 Retry-After 1 s',
    expect.stringMatching(/^the rate fell from \d\d\.\d\/s to \d\d\.\d\/s$/),
    '20 more emails, none lost',
  ])
  await expectNoKeys('mail.mjs')
})

test('a full tenant is refused alone, and a tenant with four times the weight gets four times the share', async () => {
  expect(await run(join(built.folder, 'examples'), 'tenants.mjs')).toEqual([
    'hobby is full: come back later',
    'acme: accepted',
    expect.stringMatching(/^of the first 25 emails, (19|20|21) were acme's$/),
  ])
  await expectNoKeys('tenants.mjs')
})

test('sign-ups that would wait for longer than two seconds are refused by Express, Fastify and Next.js alike', async () => {
  expect(await run(join(built.folder, 'examples'), 'signup.mjs')).toEqual([
    'logins by Express: 200 200 200',
    'logins by Fastify: 200 200 429',
    expect.stringMatching(/^1\d accepted, \d refused$/),
    expect.stringMatching(/^\d+ accepted, \d+ refused$/),
    'Quota exceeded',
    expect.stringMatching(/^\d+ accepted, \d+ refused$/),
    expect.stringMatching(/^try again in \d s$/),
  ])
  await expectNoKeys('signup.mjs')
})

test('calls share the keys of a pool, and one that is refused rests alone', async () => {
  const lines = await run(join(built.folder, 'examples'), 'pool.mjs')
  expect(lines).toEqual([
    'key b rests: 429 Retry-After 1 s',
    expect.stringMatching(/^calls done with a: 1\d, b: [1-9], c: 1\d$/),
    expect.stringMatching(/^key c: held, 10\/s, [01] left$/),
  ])
  await expectNoKeys('pool.mjs')
})

test('rows are written in batches, at a rate of rows', async () => {
  const postgres = await startPostgres()
  onTestFinished(() => postgres.stop())
  const settings = { DATABASE_URL: postgres.url }
  const [line, ...gathered] = await runWith(settings, join(built.folder, 'examples'), 'batches.mjs')
  expect(line).toMatch(/^2750 rows in 6 statements within \d+ ms$/)
  expect(gathered).toEqual(['row 0 has no name', '99 more rows'])
  // 450 ms between the first slot and the last, less the lateness that a start may have.
  expect(Number(line?.split(' ').at(-2))).toBeGreaterThan(300)
  await expectNoKeys('batches.mjs')
})

test('what p-queue did is done at the rate, two at a time, and callers get the results', async () => {
  expect(await run(join(built.folder, 'examples'), 'p-queue.mjs')).toEqual([
    expect.stringMatching(/^12 pages, 86 characters, [12] at once at most$/),
  ])
  await expectNoKeys('p-queue.mjs')
})
