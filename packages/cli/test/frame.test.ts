import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, expect, test, vi } from 'vitest'
import { QueueUnavailableError } from '../../../src/errors.ts'
import { VERSION } from '../../../src/version.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { temporaryFolder } from '../../../test/support/temporary-folder.ts'
import { compilePrograms, linkPackages } from '../../../workers/services/compile-programs.ts'
import { runCommand } from '../../../workers/services/run-command.ts'
import { COMMANDS } from '../src/command-list.ts'
import { failureOf } from '../src/failure.ts'
import { runCommandLine } from '../src/program.ts'
import { runHere } from './run-here.ts'
import { useSluice } from './sluice-process.ts'

const redis = useRedis(import.meta.url)
const sluice = useSluice(redis)
afterEach(() => {
  vi.restoreAllMocks()
  vi.unstubAllEnvs()
})

test('--help lists every command, and loads none', async () => {
  // A command that was loaded would have loaded its packages, which are beside it here: this fails what is asked for
  // beside commander.
  const folder = temporaryFolder()
  await linkPackages(folder)
  await compilePrograms(join(folder, 'programs'), ['packages/cli/src/main.ts'])
  const output = await runCommand(process.execPath, [join(folder, 'programs/packages/cli/src/main.mjs'), '--help'], {
    ...{ env: { ...process.env, NODE_DEBUG: 'esm' }, withStderr: true },
  })
  for (const { name, summary } of COMMANDS) expect(output).toMatch(new RegExp(`^  ${name}\\b.*${summary}`, 'm'))
  expect(output).toContain('Exit codes: 0 done')
  const loaded = (name: string) => existsSync(`node_modules/${name}`) && output.includes(`node_modules/${name}/`)
  expect(['commander', 'ioredis', 'bullmq', 'cli-table3', 'zod'].filter(loaded)).toEqual(['commander'])
})

test('every command has a help with an example', async () => {
  const helps = await Promise.all(
    [['--version'], ['help', 'pause'], ['shape', 'set', '--help'], ['worker', 'email', '--help']].map((args) =>
      sluice.run(args),
    ),
  )
  expect(helps.map(({ code }) => code)).toEqual([0, 0, 0, 0])
  const [version, pause, set, email] = helps.map(({ stdout }) => stdout)
  expect(version).toBe(`${VERSION}\n`)
  expect(pause).toContain('$ sluice pause emails --until 2026-12-24T18:00:00Z --reason holidays')
  expect(set).toContain('$ sluice shape set emails --rate 20/s')
  expect(set).toMatch(/\nGlobal options: --redis-url .* --no-color\n$/)
  expect(email).toContain('SMTP_URL')
})

test.each([
  [['statu'], "unknown command 'statu' (Did you mean status?)"],
  [['status', '--jsno'], "unknown option '--jsno' (Did you mean --json?)"],
  [['status', 'a:b'], "expected the name of a queue, without ':'"],
  [['status', 'a', 'b'], 'too many arguments'],
  [['explain', 'emails'], "missing required argument 'job'"],
  [['pause', 'emails'], "required option '--reason <text>' not specified"],
  [['pause', 'emails', '--reason', ' '], 'expected a non-empty string'],
  [['pause', 'emails', '--reason', 'x', '--for', '10'], 'expected a duration such as'],
  [['pause', 'emails', '--reason', 'x', '--until', '2001-01-01T00:00:00Z'], 'expected a time in the future'],
  [['pause', 'q', '--reason', 'x', '--until', '2999-01-01T00:00:00Z', '--for', '1h'], 'cannot be used with option'],
  [['shape', 'set', 'emails', '--rate', 'fast', '--reason', 'x'], "rate must be '50/s'"],
  [['shape', 'set', 'emails', '--burst', '1.5', '--reason', 'x'], 'shape.burst must be a whole number >= 1; got 1.5'],
  [['shape', 'set', 'emails', '--reason', 'x'], 'expected at least one field and its value'],
  [['shape', 'clear', 'emails', 'rat', '--reason', 'x'], "no field 'rat' can be cleared; expected rate"],
  [['top', '--interval', '100ms'], 'expected at least 200ms'],
  [['enqueue', 'emails', '--file', '/does/not/exist'], 'cannot read /does/not/exist: ENOENT'],
  [['jobs', 'retry', 'emails', '--all'], "required option '--reason <text>' not specified"],
  [['dead', 'drop', 'emails-dead', '--reason', 'x'], 'expected the ids of letters, or --all, or --failed-reason'],
  [['completion', 'tcsh'], 'Allowed choices are bash, zsh, fish'],
  [['status', '--redis-url', 'http://user:secret@there'], '--redis-url: expected a redis:// or rediss:// URL'],
])('%j is wrong usage: one line, and 2', async (args, message) => {
  // Nothing listens there: Redis is not asked before the input was checked.
  vi.stubEnv('REDIS_URL', 'redis://127.0.0.1:1')
  let stderr = ''
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    stderr += text
    return true
  })
  expect(await runCommandLine(args)).toBe(2)
  expect(stderr).toContain(message)
  expect(stderr).toMatch(/^sluice: [^\n]+\n$/)
  expect(stderr).not.toContain('secret')
})

test('wrong usage ends the process with 2, and nothing on stdout', async () => {
  const { code, stdout, stderr } = await sluice.run(['statu'])
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(stderr).toBe("sluice: unknown command 'statu' (Did you mean status?)\n")
})

test('without a command it prints its help on stderr, and ends with 2', async () => {
  const { code, stdout, stderr } = await sluice.run([])
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(stderr).toContain('Usage: sluice')
})

test('the dashboard is refused for a cluster before any package is asked for', async () => {
  const { code, stderr } = await runHere(redis, ['dashboard', '--cluster'])
  expect([code, stderr]).toEqual([2, expect.stringMatching(/^sluice: on a cluster, mount the dashboard in an app/)])
})

test('--cluster on a Redis that is none says so, with 3', async () => {
  const { code, stderr } = await runHere(redis, ['status', '--cluster'])
  expect(code).toBe(3)
  expect(stderr).toMatch(
    /^sluice: cannot use Redis at \S+: it is not a cluster: leave out --cluster and REDIS_CLUSTER\n$/,
  )
})

test('a node of a cluster without --cluster is named as one, with 3', () => {
  const moved = new Error('MOVED 3112 127.0.0.1:7000')
  for (const error of [moved, new QueueUnavailableError('mail', moved.message, false, { cause: moved })]) {
    expect(failureOf(error, { host: 'redis:7001' })).toEqual({
      exitCode: 3,
      message: 'Redis at redis:7001 is a node of a cluster: give --cluster or set REDIS_CLUSTER',
    })
  }
})

test('a wrong password is told with 3', async () => {
  const { host, port } = redis.connection
  const { code, stderr } = await sluice.run(['status', '--redis-url', `redis://nobody:secret@${host}:${port}`])
  expect(code).toBe(3)
  expect(stderr).toMatch(/^sluice: Redis at \S+ refuses: WRONGPASS [^\n]+\n$/)
  expect(stderr).not.toContain('secret')
})

test('a package that is missing is named', () => {
  const error = Object.assign(new Error("Cannot find package 'nodemailer' imported from /x.js"), {
    code: 'ERR_MODULE_NOT_FOUND',
  })
  expect(failureOf(error)).toEqual({
    exitCode: 1,
    message: 'this needs the package nodemailer, which is not installed: npm install nodemailer',
  })
})

test('a fault of the program comes with where it happened', () => {
  expect(failureOf(new TypeError('x is not a function')).message).toMatch(/^TypeError: x is not a function\n\s+at /)
})
