import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { unusableText } from '../../../src/redis/unusable.ts'
import { expect, onTestFinished, test, useConcurrentTests } from '../../../test/support/concurrent.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { temporaryFolder } from '../../../test/support/temporary-folder.ts'
import { findFreePort } from '../../../workers/services/free-port.ts'
import { COMMANDS } from '../src/command-list.ts'
import { useSluice } from './sluice-process.ts'

useConcurrentTests()
const sluice = useSluice(useRedis(import.meta.url))

const REASON = ['--reason', 'x']
/** A call of each command: of those with commands of their own, one that reads and one that writes. */
const CALLS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  status: [[]],
  top: [['--json']],
  explain: [['q', '1']],
  shape: [
    ['show', 'q'],
    ['set', 'q', '--rate', '5/s', ...REASON],
  ],
  pause: [['q', ...REASON]],
  resume: [['q', ...REASON]],
  group: [
    ['list', 'q'],
    ['pause', 'q', 'g', ...REASON],
  ],
  key: [
    ['list', 'q'],
    ['clear', 'q', 'l', 'k', ...REASON],
  ],
  limits: [['list'], ['reset', 'l', 'k']],
  shards: [['move', 'a', 'b', ...REASON]],
  enqueue: [['q', '--file', '-']],
  jobs: [
    ['failed', 'q'],
    ['retry', 'q', '1', ...REASON],
  ],
  cancel: [['q', '1', ...REASON]],
  redrive: [['q', '--from', 'd', ...REASON]],
  dead: [
    ['list', 'd'],
    ['drop', 'd', '1', ...REASON],
  ],
  record: [['q']],
  simulate: [['--queue', 'q']],
  audit: [['q']],
  doctor: [[]],
  functions: [['load'], ['list'], ['delete', '--others']],
  // It serves, and warns: metrics.test.ts.
  metrics: [],
  dashboard: [['--port', '0']],
}
/** They read settings, name themselves, and end with 1 where the others end with 3. */
const PROGRAMS: Readonly<Record<string, readonly (readonly [args: readonly string[], name: string])[]>> = {
  worker: [
    [['http'], 'http'],
    [['email'], 'email'],
    [['db-writes'], 'db-writes'],
  ],
  gateway: [[[], 'gateway']],
}
const USAGE = 2

function settings(redisUrl: string): Record<string, string> {
  const folder = temporaryFolder()
  const file = (name: string, content: object) => {
    writeFileSync(join(folder, name), JSON.stringify(content))
    return join(folder, name)
  }
  const parameters = [{ name: 'a', type: 'string' }]
  return {
    ...{ REDIS_URL: redisUrl, RATE: '1/s', PORT: '0', ALLOW_URLS: 'true' },
    SMTP_URL: 'smtp://127.0.0.1:1',
    DATABASE_URL: 'postgres://127.0.0.1:1/none',
    STATEMENTS: file('statements.json', { statements: { x: { sql: 'insert into x values ($1)', parameters } } }),
    CONFIG: file('gateway.json', { queues: { q: { shape: { rate: '1/s', capacity: 10 } } } }),
  }
}

/** A server that accepts connections, and never answers. */
async function silentServer(): Promise<string> {
  const server = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

async function expectRefused(url: string, args: readonly string[], expected: { code: number; stderr: string }) {
  const end = await sluice.run(args, { input: '{"name":"x","data":{}}\n', env: settings(url) })
  expect(end, args.join(' ')).toEqual({ ...expected, stdout: '' })
}

test('without Redis each command and each program prints one line, and ends', async () => {
  const host = `127.0.0.1:${await findFreePort()}`
  const why = `cannot use Redis at ${host}: connect ECONNREFUSED ${host}\n`
  const url = `redis://user:secret@${host}`
  const ends = COMMANDS.flatMap(({ name }) =>
    name in PROGRAMS
      ? PROGRAMS[name]!.map(([args, program]) =>
          expectRefused(url, [name, ...args], { code: 1, stderr: `sluice ${program}: ${why}` }),
        )
      : CALLS[name]!.map((args) => expectRefused(url, [name, ...args], { code: 3, stderr: `sluice: ${why}` })),
  )
  await Promise.all(ends)
})

test('a Redis that accepts the connection but answers nothing is named in one line', async () => {
  const host = await silentServer()
  const calls = [
    [['status'], 3, 'sluice'],
    [['limits', 'list'], 3, 'sluice'],
    [['worker', 'http'], 1, 'sluice http'],
  ] as const
  const ends = calls.map(async ([args, code, name]) => {
    const end = await sluice.run(args, { env: settings(`redis://:secret@${host}`) })
    expect(end, args.join(' ')).toEqual({ code, stdout: '', stderr: expect.stringMatching(/^[^\n]+\n$/) })
    expect(end.stderr).toMatch(`${name}: cannot use Redis at ${host}: expected an answer, got none in time (`)
  })
  await Promise.all(ends)
})

test.each([
  ['WRONGPASS invalid username-password pair', 'Redis at db:6379 refuses: WRONGPASS invalid username-password pair'],
  [
    'NOAUTH HELLO must be called',
    'Redis at db:6379 asks for a password: expected one in its URL (redis://:PASSWORD@db:6379), got none (NOAUTH)',
  ],
])('of %s the line says what was expected', (message, line) => {
  expect(unusableText('db:6379', new Error(message))).toBe(line)
})

test('a host without an address and a URL of another kind are named in one line', async () => {
  const missing = expectMissing(
    'redis://no-such-host.invalid',
    /^sluice: cannot use Redis at no-such-host\.invalid: [^\n]+\n$/,
    3,
  )
  const wrong = expectMissing(
    'http://127.0.0.1:1',
    /^sluice: --redis-url: expected a redis:\/\/ or rediss:\/\/ URL; got [^\n]+\n$/,
    USAGE,
  )
  await Promise.all([missing, wrong])
})

async function expectMissing(url: string, stderr: RegExp, code: number): Promise<void> {
  const end = await sluice.run(['status'], { env: settings(url) })
  expect(end).toEqual({ code, stdout: '', stderr: expect.stringMatching(stderr) })
}
