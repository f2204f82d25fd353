import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { beforeAll } from 'vitest'
import { expect, onTestFinished, test, useConcurrentTests } from '../../../test/support/concurrent.ts'
import { useProcesses } from '../../../test/support/processes.ts'
import { temporaryFolder } from '../../../test/support/temporary-folder.ts'
import { type RedisService, startRedis } from '../../../workers/services/redis.ts'
import { ANY, jsonFile } from '../../gateway/test/program/support.ts'
import { noCertificate, startTlsFront } from './tls-front.ts'

// Fault table, rows 20, 32 and 33: the programs as they are shipped, with servers of their own.
const SCRIPTS = {
  http: new URL('../../../workers/http.ts', import.meta.url),
  gateway: new URL('../../../workers/gateway.ts', import.meta.url),
}
const PROGRAMS = Object.keys(SCRIPTS) as (keyof typeof SCRIPTS)[]
const PREFIX = 'refused'
const WAIT = { timeout: 60_000, interval: 20 }

useConcurrentTests()
const processes = useProcesses()
let evicting: RedisService
let guarded: RedisService

beforeAll(async () => {
  const asked = { ignoreGiven: true, args: ['--maxmemory-policy', 'volatile-lru'] }
  ;[evicting, guarded] = await Promise.all([startRedis(asked), startRedis({ ignoreGiven: true })])
  const admin = new Redis(guarded.url)
  await admin.config('SET', 'requirepass', 'right')
  admin.disconnect()
  return async () => {
    await Promise.all([evicting.stop(), guarded.stop()])
  }
})

/** @param url of its Redis, whose password is in no line of its output */
function start(name: keyof typeof SCRIPTS, url: string, env: Record<string, string> = {}) {
  const targets = join(temporaryFolder(), 'targets.json')
  writeFileSync(targets, JSON.stringify({ targets: { here: { baseUrl: 'http://127.0.0.1:1' } } }))
  const settings = {
    TARGETS: targets,
    QUEUE: 'q',
    RATE: '1/s',
    CONFIG: jsonFile('gateway.json', { queues: { q: ANY } }),
  }
  return processes.fork(SCRIPTS[name], {
    env: { ...settings, REDIS_URL: url, PREFIX, PORT: '0', LOG_LEVEL: 'trace', ...env },
  })
}

async function expectRefused(name: keyof typeof SCRIPTS, url: string, reason: RegExp, env = {}): Promise<void> {
  const program = start(name, url, env)
  expect(await program.exited, program.output).toEqual({ code: 1, signal: null })
  // One line, with the reason and without the password.
  expect(program.output).toMatch(reason)
  expect(program.output.trimEnd().split('\n')).toHaveLength(1)
  expect(program.output).not.toContain('CANARY')
}

test.each(PROGRAMS)('%s does not start with a Redis that may evict keys, and writes nothing', async (name) => {
  await expectRefused(name, evicting.url, /expected maxmemory-policy noeviction, got volatile-lru \(set it with/)
  const client = new Redis(evicting.url)
  expect(await client.dbsize()).toBe(0)
  client.disconnect()
})

test.each(PROGRAMS)('%s does not start with a wrong password', async (name) => {
  await expectRefused(name, `redis://:CANARY@${guarded.host}:${guarded.port}`, /WRONGPASS/)
})

test.each<[keyof typeof SCRIPTS, string]>([
  ['http', 'xtrim'],
  ['gateway', 'lpush'],
])('%s does not start as a user that may not run %s, and leaves the queue alone', async (name, command) => {
  const admin = new Redis(guarded.url, { password: 'right' })
  onTestFinished(() => admin.disconnect())
  // Without it, a job would run and then be in no state; the others can be done without.
  await admin.call('ACL', 'SETUSER', name, 'on', '>CANARY', '~*', '&*', '+@all', `-${command}`, '-wait', '-fcall')
  const url = `redis://${name}:CANARY@${guarded.host}:${guarded.port}`
  await expectRefused(name, url, new RegExp(`the user lacks rights of a (worker|gateway): \\+${command} \\(grant it`))
  expect(await admin.keys(`${PREFIX}:*`)).toEqual([])
})

test('a certificate for another name is refused, though its authority is trusted; one for this name is not', async (context) => {
  if (noCertificate) return context.skip(noCertificate)
  const [other, right] = await Promise.all([
    startTlsFront(guarded.url, 'DNS:redis.example'),
    startTlsFront(guarded.url, 'IP:127.0.0.1'),
  ])
  const trusting = ({ certificate }: typeof other) => ({ NODE_EXTRA_CA_CERTS: certificate })
  const url = (port: number) => `rediss://:right@127.0.0.1:${port}`
  await expectRefused('http', url(other.port), /certificate's altnames/, trusting(other))
  const program = start('http', url(right.port), trusting(right))
  await expect.poll(() => program.output, WAIT).toContain('"msg":"ready"')
  expect(await program.kill('SIGTERM'), program.output).toEqual({ code: 0, signal: null })
  expect(program.output).not.toContain('right@')
})
