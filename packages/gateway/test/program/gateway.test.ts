import { readFileSync } from 'node:fs'
import { describe, expect, onTestFinished, test } from 'vitest'
import { useProcesses } from '../../../../test/support/processes.ts'
import { startProxy } from '../../../../test/support/proxy.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { withQueue } from '../../../workers/test/queues.ts'
import { tokens } from '../../src/index.ts'
import { readConfigFile } from '../../src/program/config-file.ts'
import { ANY, jsonFile, post, runHere, startGateway, tokenFile } from './support.ts'

const GATEWAY = new URL('../../../../workers/gateway.ts', import.meta.url)
const WAIT = { timeout: 60_000, interval: 20 }

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const env = { REDIS_URL: redis.url, PREFIX: redis.prefix, LIMITS_PREFIX: redis.prefix }
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

test('a job is taken, and is in the queue as it was sent', async () => {
  await withQueue(redis, 'taken', async (queue) => {
    const { program, url } = await startGateway(processes, { queues: { taken: { ...ANY, jobName: 'mail' } } }, env)
    const response = await post(url, 'taken', { to: 'ann@example.com' })
    const { id } = (await response.json()) as { id: string }
    expect(response.status).toBe(202)
    expect(response.headers.get('location')).toBe(`/queues/taken/jobs/${id}`)
    const job = await queue.getJob(id)
    expect([job?.name, job?.data]).toEqual(['mail', { to: 'ann@example.com' }])
    expect((await fetch(`${url}/queues/none/jobs`, { method: 'POST' })).status).toBe(404)
    const nowhere = await fetch(`${url}/nowhere`)
    expect(nowhere.status).toBe(404)
    expect(nowhere.headers.get('content-type')).toBe('application/problem+json')
    expect(await program.kill('SIGTERM'), program.output).toEqual({ code: 0, signal: null })
  })
})

describe('tokens', () => {
  test('say who calls and which queues he may use', async () => {
    const { file, tokens } = tokenFile({ shop: { queues: ['mine'] }, admin: {} })
    const config = { queues: { mine: ANY, other: ANY } }
    const { program, url } = await startGateway(processes, config, { ...env, TOKEN_FILE: file })
    const statusOf = async (queue: string, headers?: Record<string, string>) =>
      (await post(url, queue, {}, headers)).status
    expect(await statusOf('mine')).toBe(401)
    expect(await statusOf('mine', bearer('x'.repeat(40)))).toBe(401)
    expect(await statusOf('mine', bearer(tokens.shop))).toBe(202)
    expect(await statusOf('other', bearer(tokens.shop))).toBe(403)
    expect(await statusOf('other', bearer(tokens.admin))).toBe(202)
    expect((await fetch(`${url}/healthz`)).status).toBe(200)
    await program.kill('SIGTERM')
    expect(program.output).toContain('"caller":"shop"')
    for (const token of Object.values(tokens)) expect(program.output).not.toContain(token)
  })

  test('have limits by their tiers', async () => {
    const { file, tokens } = tokenFile({ slow: {}, quick: { tier: 'gold' } })
    const gold = { rate: '1/h', burst: 5 }
    const limits = [{ name: 'by-tier', rate: '1/h', tiers: { gold } }]
    const config = { queues: { tiers: ANY }, limits }
    const { program, url } = await startGateway(processes, config, { ...env, TOKEN_FILE: file })
    const statuses = async (token: string) => {
      const found: number[] = []
      for (let i = 0; i < 6; i++) found.push((await post(url, 'tiers', i, bearer(token))).status)
      return found
    }
    expect(await statuses(tokens.slow)).toEqual([202, 429, 429, 429, 429, 429])
    expect(await statuses(tokens.quick)).toEqual([202, 202, 202, 202, 202, 429])
    await program.kill('SIGTERM')
  })
})

test('health is told without a token, and tells why on loopback alone', async () => {
  const config = { queues: { health: ANY } }
  const here = await startGateway(processes, config, env)
  const live = await fetch(`${here.url}/healthz`)
  const ready = await fetch(`${here.url}/readyz`)
  expect([live.status, await live.json()]).toEqual([200, { ok: true, reason: expect.any(String) }])
  expect([ready.status, await ready.json()]).toEqual([200, { ok: true, reason: 'taking requests' }])
  await here.program.kill('SIGTERM')
  const { file } = tokenFile({ shop: {} })
  const open = await startGateway(processes, config, { ...env, HOST: '0.0.0.0', TOKEN_FILE: file })
  expect(await (await fetch(`${open.url}/readyz`)).json()).toEqual({ ok: true })
  await open.program.kill('SIGTERM')
})

test('a queue that cannot be added to leaves the gateway ready for the others', async () => {
  await withQueue(redis, 'torn', async (torn) => {
    await withQueue(redis, 'alone', async (alone) => {
      const client = redis.client()
      const config = { queues: { torn: ANY, alone: ANY, well: ANY } }
      const { program, url } = await startGateway(processes, config, env)
      await alone.setShape({ durability: { replicas: 3, timeoutMs: 100 } }, { by: 'tenant', reason: 'test' })
      await client.set(torn.toKey('wait'), 'not a list')
      await expect.poll(async () => (await post(url, 'alone', {})).status, WAIT).toBe(503)
      expect((await post(url, 'torn', {})).status).toBe(500)
      expect(await (await fetch(`${url}/readyz`)).json()).toEqual({ ok: true, reason: 'taking requests' })
      expect((await post(url, 'well', {})).status).toBe(202)
      await client.del(torn.toKey('wait'))
      expect((await post(url, 'torn', {})).status).toBe(202)
      expect(await program.kill('SIGTERM'), program.output).toEqual({ code: 0, signal: null })
      const turns = program.output.split('\n').filter((line) => line.includes('admissions'))
      expect(turns.map((line) => JSON.parse(line))).toEqual([
        expect.objectContaining({ queue: 'alone', msg: 'admissions fail' }),
        expect.objectContaining({ queue: 'torn', msg: 'admissions fail' }),
        expect.objectContaining({ queue: 'torn', msg: 'admissions succeed again' }),
      ])
    })
  })
})

describe('off loopback', () => {
  const nowhere = { REDIS_URL: 'redis://127.0.0.1:1', HOST: '0.0.0.0', PORT: '0' }
  const config = () => jsonFile('gateway.json', { queues: { q: ANY } })

  test.each([
    [
      'tokens',
      {},
      'HOST: 0.0.0.0 can be reached from other machines: expected TOKEN_FILE, or TRUST_PROXY with a reason',
    ],
    ['a reason', { TRUST_PROXY: '10.0.0.0/8' }, 'TRUST_PROXY_REASON: expected what the proxies do to keep others out'],
    ['proxies', { TRUST_PROXY_REASON: 'they ask who it is' }, 'HOST: 0.0.0.0 can be reached from other machines'],
  ])('without %s it ends with 2 before it opens anything', async (_, more, problem) => {
    const { code, output } = await runHere([], { ...nowhere, CONFIG: config(), ...more })
    expect(code).toBe(2)
    expect(output).toContain(`sluice gateway: 1 setting is wrong:\n  ${problem}`)
  })

  test('behind proxies it takes requests from these alone', async () => {
    const reason = { TRUST_PROXY_REASON: 'they ask who it is' }
    const queues = { queues: { proxied: ANY } }
    for (const [TRUST_PROXY, status] of [
      ['loopback', 202],
      ['10.0.0.0/8', 403],
    ] as const) {
      const { program, url } = await startGateway(processes, queues, {
        ...env,
        HOST: '0.0.0.0',
        TRUST_PROXY,
        ...reason,
      })
      expect((await post(url, 'proxied', {})).status).toBe(status)
      await program.kill('SIGTERM')
      expect(program.output).toContain('they ask who it is')
    }
  })
})

test.each([
  ['CONFIG', { CONFIG: 'nowhere.json' }, 'CONFIG: nowhere.json: ENOENT'],
  ['a port', { PORT: 'http' }, 'PORT: expected a port from 0 to 65535'],
  ['HOST', { HOST: 'localhost' }, 'HOST: expected an IP address'],
])('with a wrong value of %s it ends with 2', async (_, more, problem) => {
  const { code, output } = await runHere([], { ...env, CONFIG: jsonFile('g.json', { queues: { q: ANY } }), ...more })
  expect(code).toBe(2)
  expect(output).toContain(problem)
})

test.each([
  ['no queue', { queues: {} }, 'CONFIG: queues: expected at least one queue'],
  ['a schema that is none', { queues: { q: { schema: { type: 'nonsense' } } } }, 'CONFIG: queues.q.schema:'],
  ['a limit that is none', { queues: { q: ANY }, limits: [{ name: 'calls', rate: 'often' }] }, 'CONFIG: '],
  [
    'shedding for a queue that there is not',
    { queues: { q: ANY }, shedding: { queues: { p: {} } } },
    'shedding.queues.p: expected the name of a queue',
  ],
])('a configuration with %s ends it with 2', async (_, config, problem) => {
  const { code, output } = await runHere([], { ...env, CONFIG: jsonFile('gateway.json', config) })
  expect(code).toBe(2)
  expect(output).toContain(problem)
})

// In a process of its own: the exit code is that of the program.
test('a token file that is wrong ends it with 2', async () => {
  const CONFIG = jsonFile('gateway.json', { queues: { q: ANY } })
  const program = processes.fork(GATEWAY, { env: { ...env, CONFIG, TOKEN_FILE: jsonFile('tokens.json', []) } })
  expect(await program.exited).toEqual({ code: 2, signal: null })
  expect(program.output).toMatch(/TOKEN_FILE: .*expected at least one token/)
})

test('--new-token makes a token that its entry stands for', async () => {
  const program = processes.fork(GATEWAY, { args: ['--new-token', 'shop'] })
  expect(await program.exited).toEqual({ code: 0, signal: null })
  const [, token = ''] = /^token, for its holder alone: (\S+)$/m.exec(program.output) ?? []
  const [, entry = ''] = /^entry, for TOKEN_FILE: (.+)$/m.exec(program.output) ?? []
  const file = jsonFile('tokens.json', [JSON.parse(entry)])
  const gateway = await startGateway(processes, { queues: { made: ANY } }, { ...env, TOKEN_FILE: file })
  expect((await post(gateway.url, 'made', {}, bearer(token))).status).toBe(202)
  await gateway.program.kill('SIGTERM')
})

test('--help names the settings and ends with 0', async () => {
  const program = processes.fork(GATEWAY, { args: ['--help'] })
  expect(await program.exited).toEqual({ code: 0, signal: null })
  for (const variable of ['REDIS_URL', 'CONFIG', 'TOKEN_FILE', 'TRUST_PROXY_REASON', '--new-token']) {
    expect(program.output).toContain(variable)
  }
})

test('a limit that is another one for others ends it with 2; with a higher version it is changed for all', async () => {
  const config = (rate: string, version?: number) => ({
    queues: { q: ANY },
    limits: [{ name: 'changed', rate, version }],
  })
  const first = await startGateway(processes, config('10/s'), env)
  await first.program.kill('SIGTERM')
  // Redis answers later than a decision may take.
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  proxy.latency(120)
  const start = startGateway(processes, config('20/s'), { ...env, REDIS_URL: proxy.url })
  await expect(start).rejects.toThrow('CONFIG: limit "changed" is already defined')
  const second = await startGateway(processes, config('20/s', 2), env)
  await second.program.kill('SIGTERM')
})

test('the configuration and the tokens on the page of the gateway are sound', () => {
  const page = readFileSync(new URL('../../../../docs/gateway.md', import.meta.url), 'utf8')
  const [config, tokensOfPage] = Array.from(page.matchAll(/^```json\n(.*?)^```$/gms), ([, text = '']) =>
    JSON.parse(text),
  )
  const { queueNames, limits } = readConfigFile(jsonFile('gateway.json', config))
  expect([queueNames, limits[0]?.per]).toEqual([['emails'], 'caller'])
  expect(() => tokens({ file: jsonFile('tokens.json', tokensOfPage), checkIntervalMs: 0 })).not.toThrow()
})

test('the example starts', async () => {
  const example = JSON.parse(readFileSync(new URL('../../../../examples/gateway.config.json', import.meta.url), 'utf8'))
  const { program, url } = await startGateway(processes, example, env)
  const mail = { from: 'shop@example.com', to: 'ann@example.com', subject: 'Welcome', text: 'Hello' }
  const once = { 'idempotency-key': 'order-4711' }
  expect((await post(url, 'emails', mail)).status, program.output).toBe(400)
  const first = await post(url, 'emails', mail, once)
  const again = await post(url, 'emails', mail, once)
  expect([first.status, again.status, again.headers.get('idempotency-replayed')]).toEqual([202, 202, 'true'])
  expect((await post(url, 'emails', { ...mail, bcc: 'eve@example.com' }, once)).status).toBe(422)
  await expect.poll(async () => (await fetch(`${url}/readyz`)).status, WAIT).toBe(200)
  await program.kill('SIGTERM')
})
