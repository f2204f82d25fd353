import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { useProcesses } from '../../../test/support/processes.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { temporaryFolder } from '../../../test/support/temporary-folder.ts'
import { useServer } from '../../fetch/test/server.ts'
import { departuresIn, withQueue } from './queues.ts'

const HTTP = new URL('../../../workers/http.ts', import.meta.url)
const WAIT = { timeout: 60_000, interval: 20 }
const TOKEN = 'TOKEN_CANARY_1'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const server = useServer()

/** The environment of a program whose target `here` is the test's server, asked with a token. */
function settings(queue: string, folder = temporaryFolder()) {
  const file = join(folder, 'targets.json')
  const headers = { authorization: { env: 'TARGET_TOKEN', prefix: 'Bearer ' } }
  writeFileSync(file, JSON.stringify({ targets: { here: { baseUrl: server.url, headers } } }))
  return {
    ...{ REDIS_URL: redis.url, PREFIX: redis.prefix, QUEUE: queue, RATE: '1000/s', LOG_LEVEL: 'trace' },
    ...{ TARGETS: file, TARGET_TOKEN: TOKEN, DEPARTURE_LOG: join(folder, 'departures.ndjson') },
  }
}

test('with groups, a host that says it is too much holds the jobs of its own group alone', async () => {
  await withQueue(redis, 'hosts', async (queue) => {
    server.answer((request, response) => {
      if (request.url === '/busy') response.writeHead(429, { 'retry-after': '3600' }).end()
      else response.writeHead(200).end()
    })
    const groups = { GROUP_DEFAULTS: '{}', FEEDBACK_SCOPE: 'group' }
    const program = processes.fork(HTTP, { env: { ...settings('hosts'), ...groups } })
    await expect.poll(async () => (await queue.meter()).shape?.groups, WAIT).toEqual({})
    const call = (group: string, path: string) => queue.add('call', { target: 'here', path }, { group: { id: group } })
    const held = await call('busy.example', '/busy')
    await expect.poll(() => queue.getGroupStatus('busy.example'), WAIT).toBe('limited')
    const others = await Promise.all([call('calm.example', '/'), call('quiet.example', '/')])
    for (const job of others) await expect.poll(() => job.isCompleted(), WAIT).toBe(true)
    expect([await held.getState(), await queue.getGroupJobsCount('busy.example')]).toEqual(['prioritized', 1])
    expect((await queue.meter()).pausedUntil).toBeUndefined()
    expect(await program.kill('SIGTERM'), program.output).toEqual({ code: 0, signal: null })
  })
})

test('the answer is the result of the job, and every attempt is metered and carries one key', async () => {
  await withQueue(redis, 'sent', async (queue) => {
    server.answer((request, response) => {
      if (server.requests.length === 1) response.writeHead(500).end(request.headers.authorization)
      else response.writeHead(201, { 'content-type': 'application/json', 'set-cookie': 'a=b' }).end('{"id":7}')
    })
    const data = { target: 'here', path: '/contacts', json: { name: 'Ann' } }
    const job = await queue.add('contact', data, { attempts: 2 })
    const folder = temporaryFolder()
    const program = processes.fork(HTTP, { env: settings('sent', folder) })
    await expect.poll(() => job.isCompleted(), WAIT).toBe(true)
    expect(await program.kill('SIGTERM'), program.output).toEqual({ code: 0, signal: null })
    expect((await queue.getJob(job.id ?? ''))?.returnvalue).toEqual({
      status: 201,
      headers: { 'content-type': 'application/json', date: expect.any(String) },
      body: { id: 7 },
      bodyTruncated: false,
      durationMs: expect.any(Number),
    })
    const departures = departuresIn(join(folder, 'departures.ndjson'))
    const key = departures[0]?.effectId
    expect(departures.map(({ attempt, effectId }) => [attempt, effectId])).toEqual([
      [1, key],
      [2, key],
    ])
    expect(server.requests.map(({ url, body, headers }) => [url, body, headers['idempotency-key']])).toEqual([
      ['/contacts', '{"name":"Ann"}', key],
      ['/contacts', '{"name":"Ann"}', key],
    ])
    expect(server.requests[1]?.headers.authorization).toBe(`Bearer ${TOKEN}`)
    expect(program.output).toContain('"failed"')
    expect(program.output).not.toContain('CANARY')
  })
})

test('no secret and no data is in the log, the results or the reasons', async () => {
  await withQueue(redis, 'refused', async (queue) => {
    server.answer((request, response) => {
      const status = Number(request.url?.slice(1))
      response.writeHead(status, { 'retry-after': TOKEN, 'x-request-id': TOKEN }).end(JSON.stringify(request.headers))
    })
    const paths = ['/200', '/302', '/400', '/401', '/404', '/422', '/../DATA_CANARY']
    const jobs = await queue.addBulk(
      paths.map((path) => ({
        name: 'call',
        data: { target: 'here', path, text: 'DATA_CANARY' },
        opts: { attempts: 1 },
      })),
    )
    const program = processes.fork(HTTP, { env: settings('refused') })
    await expect.poll(async () => (await queue.getJobCounts('failed')).failed, WAIT).toBe(paths.length - 1)
    expect(await program.kill('SIGTERM'), program.output).toEqual({ code: 0, signal: null })
    const traces = await Promise.all(
      jobs.map(async ({ id = '' }) => {
        const job = await queue.getJob(id)
        return JSON.stringify([job?.returnvalue, job?.failedReason, job?.stacktrace])
      }),
    )
    expect(server.requests).toHaveLength(paths.length - 1)
    expect(traces[0]).toContain('Bearer [redacted]')
    expect(traces[1]).toContain('POST to target \\"here\\" was answered with 302')
    expect(traces[6]).toContain('the request was not accepted: path: expected no segment . or ..')
    expect(traces.join()).not.toContain('CANARY')
    expect(program.output).toContain('was answered with 404')
    expect(program.output).not.toContain('CANARY')
  })
})

test.each([
  [
    'a secret',
    { TARGET_TOKEN: '' },
    'target "here": headers: authorization: expected a value in the environment variable TARGET_TOKEN\n',
  ],
  ['any target', { TARGETS: '' }, 'expected at least one target\n'],
  ['its file', { TARGETS: 'nowhere.json' }, 'nowhere.json: ENOENT'],
])('without %s its settings are wrong: it ends with 2 before it opens anything', async (_, env, problem) => {
  const nowhere = { ...settings('not-started'), REDIS_URL: 'redis://127.0.0.1:1' }
  const program = processes.fork(HTTP, { env: { ...nowhere, ...env } })
  expect(await program.exited).toEqual({ code: 2, signal: null })
  expect(program.output).toContain(`sluice http: 1 setting is wrong:\n  TARGETS: ${problem}`)
  expect(server.connections).toBe(0)
})

test('--help names the settings and ends with 0', async () => {
  const program = processes.fork(HTTP, { args: ['--help'] })
  expect(await program.exited).toEqual({ code: 0, signal: null })
  for (const variable of ['REDIS_URL', 'RATE', 'TARGETS', 'ALLOW_URLS', 'PROFILE']) {
    expect(program.output).toContain(variable)
  }
})
