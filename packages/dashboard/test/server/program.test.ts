import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { expect, onTestFinished, test, useConcurrentTests } from '../../../../test/support/concurrent.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { sluiceProgram } from '../../../cli/test/sluice-process.ts'
import { readEvents } from './event-reader.ts'
import { shapedQueue, tokenFile } from './support.ts'

const redis = useRedis(import.meta.url)
useConcurrentTests()
const OPTIONS = ['--redis-url', redis.url, '--prefix', redis.prefix]

interface Run {
  readonly child: ChildProcess
  output(): string
  readonly ended: Promise<number | null>
}

/** `sluice dashboard`, as a process. */
function start(args: readonly string[], options: readonly string[] = OPTIONS, nodeArgs: readonly string[] = []): Run {
  const child = spawn(process.execPath, [...nodeArgs, sluiceProgram(), 'dashboard', ...options, ...args])
  onTestFinished(() => void child.kill('SIGKILL'))
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk) => {
      output += chunk
    })
  }
  return { child, output: () => output, ended: once(child, 'close').then(([code]) => code) }
}

/** Resolves with its address once it listens. */
async function ready(run: Run): Promise<string> {
  const found = () => /"page":"([^"]+)"/.exec(run.output())?.[1]
  await expect.poll(found, { timeout: 60_000, message: run.output() }).toBeDefined()
  return found() as string
}

test('it serves the page and the queues, and stops while pages are open', async () => {
  await shapedQueue(redis, 'emails')
  const atTerminal = ['--import', 'data:text/javascript,process.stdout.isTTY = true']
  const run = start(['--port', '0', '--allow-actions', '--by', 'ada', '--title', 'Mails'], OPTIONS, atTerminal)
  const page = await ready(run)
  await expect.poll(run.output).toContain(`Open ${page} in a browser; Ctrl+C stops it.\n`)
  expect(new URL(page).hostname).toBe('127.0.0.1')
  expect((await fetch(page)).status).toBe(200)
  for (const [path, status] of [
    ['nowhere', 404],
    ['%E0%A4%A', 400],
    [`api/queues/${'x'.repeat(2000)}`, 404],
  ] as const) {
    const answer = await fetch(page + path)
    expect([path, answer.status, answer.headers.get('x-frame-options')]).toEqual([path, status, 'DENY'])
    expect(answer.headers.get('content-security-policy')).toContain("default-src 'self'")
  }
  const raw = connect(Number(new URL(page).port), '127.0.0.1')
  raw.end('no HTTP\r\n\r\n')
  const [unreadable] = await once(raw, 'data')
  expect(String(unreadable)).toMatch(/^HTTP\/1\.1 400 [\s\S]*x-frame-options: DENY/)
  const fleet = await (await fetch(`${page}api/fleet`)).json()
  expect(fleet).toMatchObject({ title: 'Mails', allowActions: true, showData: false, queues: [{ name: 'emails' }] })
  const paused = await fetch(`${page}api/queues/emails/actions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'sec-fetch-site': 'same-origin' },
    body: JSON.stringify({ action: 'setShape', shape: { rate: '9/s' }, reason: 'why' }),
  })
  expect(paused.status).toBe(204)
  const { history } = (await (await fetch(`${page}api/queues/emails`)).json()) as { history: object[] }
  expect(history[0]).toMatchObject({ kind: 'override', by: 'ada', reason: 'why' })

  const events = await readEvents(`${page}api/events`)
  await events.next('fleet')
  // A browser may open a connection and ask nothing over it.
  const idle = connect(Number(new URL(page).port), '127.0.0.1')
  await once(idle, 'connect')
  idle.on('error', () => {})
  run.child.kill('SIGTERM')
  for (;;) if ((await events.next()) === undefined) break
  expect(await run.ended).toBe(0)
  expect(run.output()).toContain('"msg":"stopped"')
})

test('off loopback it asks for a token, and does not reveal it', async () => {
  const { file, tokens } = tokenFile({ ada: undefined })
  const run = start(['--host', '0.0.0.0', '--port', '0', '--token-file', file])
  const port = new URL(await ready(run)).port
  const url = `http://127.0.0.1:${port}/api/fleet`
  expect((await fetch(url)).status).toBe(401)
  expect((await fetch(url, { headers: { authorization: `Bearer ${tokens.ada}` } })).status).toBe(200)
  expect((await fetch(url, { headers: { authorization: `Bearer ${'x'.repeat(40)}` } })).status).toBe(401)
  run.child.kill('SIGINT')
  expect(await run.ended).toBe(0)
  expect(run.output()).not.toContain(tokens.ada)
})

test('proxies that keep others out are the only ones that are answered', async () => {
  const run = start([
    ...['--host', '0.0.0.0', '--port', '0', '--trust-proxy', '10.1.2.3'],
    ...['--trust-proxy-reason', 'the proxy asks for a certificate'],
  ])
  const port = new URL(await ready(run)).port
  expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(403)
  run.child.kill('SIGTERM')
  expect(await run.ended).toBe(0)
})

test.each<[string, readonly string[], readonly string[], number, RegExp]>([
  [
    'off loopback without a token',
    ['--host', '0.0.0.0'],
    OPTIONS,
    2,
    /--host: 0\.0\.0\.0 can be reached.*--token-file/,
  ],
  ['a proxy without a reason', ['--host', '::', '--trust-proxy', 'loopback'], OPTIONS, 2, /--trust-proxy-reason/],
  ['no address', ['--host', 'localhost'], OPTIONS, 2, /--host: expected an IP address/],
  ['no port', ['--port', '70000'], OPTIONS, 2, /--port: expected a port/],
  ['no token file', ['--token-file', '/nowhere.json'], OPTIONS, 2, /--token-file: .*nowhere\.json/],
  ['no such option', ['--open'], OPTIONS, 2, /unknown option/],
  [
    'no Redis',
    [],
    ['--redis-url', 'redis://:s3cret-canary@127.0.0.1:1'],
    3,
    /cannot use Redis at 127\.0\.0\.1:1: .*ECONNREFUSED/,
  ],
])('it does not start with %s', async (_what, args, options, code, problem) => {
  const run = start(args, options)
  expect([await run.ended, run.output()]).toEqual([code, expect.stringMatching(problem)])
  expect(run.output()).not.toContain('s3cret-canary')
})
