import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { stripVTControlCharacters } from 'node:util'
import { createColors } from 'picocolors'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { ShapedQueue, ShapedWorker } from '../../../src/index.ts'
import { Inspector } from '../../../src/inspect/inspector.ts'
import { startProxy } from '../../../test/support/proxy.ts'
import { useRedis } from '../../../test/support/redis.ts'
import type { Cli } from '../src/cli.ts'
import { formatTable } from '../src/open-cli.ts'
import { topScreen } from '../src/top-screen.ts'
import type { QueueFlow } from '../src/watch-queues.ts'
import { QueueWatch } from '../src/watch-queues.ts'
import { sluiceProgram, useSluice } from './sluice-process.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const sluice = useSluice(redis)
const REDIS = { role: 'master' } as const
const WAIT = { timeout: 60_000, interval: 20 }

let queue: ShapedQueue

beforeAll(async () => {
  queue = new ShapedQueue('top', { connection, prefix, shape: { rate: '50/s', capacity: 10_000 } })
  await queue.addBulk(Array.from({ length: 1000 }, () => ({ name: 'job', data: {} })))
})
afterAll(() => queue.close())

const looksOf = (stdout: string) =>
  stdout
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as { at: string; queues: QueueFlow[] })

test('where stdout is no terminal each look is a line of JSON', async () => {
  const { code, stdout, stderr } = await sluice.run(['top', 'top', '--count', '3', '--interval', '200ms'])
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const looks = looksOf(stdout)
  expect(looks.map(({ queues }) => queues.map(({ name }) => name))).toEqual([['top'], ['top'], ['top']])
  const [first, second] = looks.map(({ queues }) => queues[0] as QueueFlow)
  expect(first).not.toHaveProperty('departuresPerSecond')
  expect(second).toMatchObject({ departuresPerSecond: 0, arrivalsPerSecond: 0, refusalsPerSecond: 0 })
})

test('a look says how many jobs left a second since the one before', async () => {
  const running = sluice.start(['top', 'top', '--interval', '200ms'])
  const flows = () => looksOf(running.stdout).map(({ queues }) => queues[0] as QueueFlow)
  await expect.poll(() => flows().length, WAIT).toBeGreaterThan(0)
  const worker = new ShapedWorker('top', async () => undefined, { connection, prefix })
  const leaves = ({ departuresPerSecond = 0 }: QueueFlow) => departuresPerSecond > 0
  await expect.poll(() => flows().some(leaves), WAIT).toBe(true)
  await worker.close()
  running.child.kill('SIGINT')
  expect(await running.ended).toMatchObject({ code: 0, stderr: '' })
  const seen = flows()
  for (const [i, now] of seen.slice(1).entries()) {
    const before = seen[i] as QueueFlow
    const seconds = (new Date(now.at).getTime() - new Date(before.at).getTime()) / 1000
    expect(now.departuresPerSecond).toBeCloseTo((now.departedTotal - before.departedTotal) / seconds)
    expect(now.arrivalsPerSecond).toBe(0)
  }
})

test.each(['SIGINT', 'SIGTERM'] as const)('%s ends it with 0', async (signal) => {
  const running = sluice.start(['top'])
  await expect.poll(() => looksOf(running.stdout).length, WAIT).toBeGreaterThan(0)
  running.child.kill(signal)
  expect(await running.ended).toMatchObject({ code: 0, stderr: '' })
})

test('it goes on when Redis comes back', async () => {
  const proxy = await startProxy(redis.url)
  try {
    const args = ['top', 'top', '--interval', '200ms']
    const running = sluice.start(args, { env: { REDIS_URL: proxy.url } })
    await expect.poll(() => looksOf(running.stdout).length, WAIT).toBeGreaterThan(0)
    await proxy.refuse()
    await expect.poll(() => running.stderr, WAIT).toContain('sluice: Redis does not answer')
    const before = looksOf(running.stdout).length
    await proxy.resume()
    await expect.poll(() => looksOf(running.stdout).length, WAIT).toBeGreaterThan(before)
    running.child.kill('SIGINT')
    expect(await running.ended).toMatchObject({ code: 0 })
  } finally {
    await proxy.stop()
  }
})

// `script` of util-linux is what gives a program a terminal here.
test.runIf(process.platform === 'linux')('on a terminal it draws a screen, and q ends it', async () => {
  const program = `stty cols 140 rows 40; ${process.execPath} ${sluiceProgram()} top; echo "ended with $?"`
  const env = { ...process.env, REDIS_URL: redis.url, PREFIX: prefix }
  const child = spawn('script', ['-qec', program, '/dev/null'], { env })
  let screen = ''
  child.stdout.on('data', (chunk) => {
    screen += chunk
  })
  const closed = once(child, 'close')
  await expect.poll(() => screen, WAIT).toContain('held by')
  child.stdin.write('q')
  await closed
  expect(screen).toMatch(/sluice top {2}\d{4}-/)
  const plain = stripVTControlCharacters(screen)
  expect(plain).toMatch(/top +No worker +— +— +— +— +— +50\/s/)
  expect(plain).toMatch(/top {2}No worker: [\d,]+ jobs wait, and no worker has reported/)
  expect(screen).toContain('ended with 0')
})

test('a look takes as few round trips for thirty queues as for one', async () => {
  const names = Array.from({ length: 30 }, (_, i) => `many-${i}`)
  const queues = names.map((name) => new ShapedQueue(name, { connection, prefix, shape: { rate: '5/s' } }))
  // One after the other: to open them all at once takes this process a while, in which none of them is answered.
  for (const one of queues) await one.add('job', {})
  const client = redis.client({ enableReadyCheck: false })
  const watch = new QueueWatch(new Inspector({ connection: client, prefix }), undefined, 1000)
  await expect.poll(async () => (await new Inspector({ connection: client, prefix }).queues()).length, WAIT).toBe(31)
  // Every few seconds a look reads the names again, which is one more.
  vi.spyOn(performance, 'now').mockReturnValue(performance.now())
  expect(await watch.look()).toHaveLength(31)
  const { write } = client.stream
  let roundTrips = 0
  client.stream.write = function (this: unknown, ...args: unknown[]) {
    roundTrips += 1
    return Reflect.apply(write, this, args)
  } as typeof write
  await watch.look()
  expect(roundTrips).toBeGreaterThan(0)
  expect(roundTrips).toBeLessThanOrEqual(3)
  await Promise.all(queues.map((one) => one.close()))
})

test('where groups have jobs waiting, it says how many, and how many of them are held', async () => {
  const groups = new ShapedQueue('tenants', { connection, prefix, shape: { groups: {} } })
  for (const id of ['a', 'b', 'b', 'c']) await groups.add('job', {}, { group: { id } })
  await groups.add('job', {})
  const watch = new QueueWatch(new Inspector({ connection: redis.client(), prefix }), 'tenants', 1)
  const cli = { table: (head, rows, fit) => formatTable(head, rows, fit), colors: createColors(false) } as Cli
  const [seen] = (await watch.look()) as [QueueFlow]
  const row = (counts: QueueFlow['groups'], columns = 200) => {
    // A queue without groups beside it.
    const queues = [
      { ...seen, groups: undefined },
      { ...seen, groups: counts },
    ]
    return topScreen(cli, { queues, total: 2, redis: REDIS, at: seen.at }, 40, columns).split('\n').at(-1)
  }
  expect(row(seen.groups)).toMatch(/ 3 +workers$/)
  expect(row({ waiting: 9, limited: 1, maxed: 2, paused: 3 })).toMatch(/ 15 \(6 held\) +workers$/)
  expect(row({ waiting: 9, limited: 1, maxed: 2, paused: 3 }, 80)).toMatch(/ 15 \(6 held\) +workers$/)
  expect(row({ waiting: 0, limited: 0, maxed: 0, paused: 0 })).toMatch(/ 0 +workers$/)
  const screen = topScreen(
    cli,
    { queues: [{ ...seen, groups: undefined }], total: 1, redis: REDIS, at: seen.at },
    40,
    200,
  )
  expect(screen).not.toContain('groups')
  await groups.close()
})
