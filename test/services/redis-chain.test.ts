import { Redis } from 'ioredis'
import { expect, inject, onTestFinished, test, vi } from 'vitest'
import { findProgram } from '../../workers/services/find-program.ts'
import { findFreePort } from '../../workers/services/free-port.ts'
import { installAdvice, NoRedisError, type StartRedisOptions, startRedis } from '../../workers/services/redis.ts'
import { fetchAptServer } from '../../workers/services/redis-apt.ts'
import { fakeProgram, temporaryFolder } from '../support/temporary-folder.ts'

const realServer = await findRealServer()

async function findRealServer(): Promise<string | undefined> {
  const found = findProgram(['redis-server', 'valkey-server'], process.env)
  if (found) return found
  if (!findProgram(['apt-get'], process.env)) return undefined
  return fetchAptServer({ packageName: 'redis-server' })
}

const start = (folder: string, options: StartRedisOptions = {}, env: NodeJS.ProcessEnv = {}) =>
  startRedis({ ...options, env: { REDIS_URL: '', PATH: folder, ...env } })

async function reasonsOf(started: Promise<unknown>): Promise<readonly string[]> {
  const error = await started.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(NoRedisError)
  return (error as NoRedisError).reasons
}

test('REDIS_URL comes before a server on PATH', async () => {
  const folder = temporaryFolder()
  fakeProgram(folder, 'redis-server', 'echo this must not run; exit 3')
  const service = await start(folder, {}, { REDIS_URL: inject('redisUrl') })
  expect(service).toMatchObject({ kind: 'given', url: inject('redisUrl'), pid: undefined })
  await expect(service.kill()).rejects.toThrow('not ours to kill')
})

test('a REDIS_URL that does not answer is an error that names it, without its password', async () => {
  const url = `redis://user:secret@127.0.0.1:${await findFreePort()}`
  const error = await start(temporaryFolder(), { allowEmulator: true }, { REDIS_URL: url }).catch((reason) => reason)
  const { host } = new URL(url)
  expect(error.message).toBe(`REDIS_URL: cannot use Redis at ${host}: connect ECONNREFUSED ${host}`)
})

test.each(['http://user:secret@127.0.0.1:6379', 'localhost:6379', '127.0.0.1'])(
  'a REDIS_URL that is no URL of a Redis (%s) is not tried',
  async (url) => {
    const started = start(temporaryFolder(), { allowEmulator: true }, { REDIS_URL: url })
    const got = `got another text of ${url.length} characters`
    await expect(started).rejects.toThrow(`REDIS_URL: expected a redis:// or rediss:// URL, ${got}`)
  },
)

test.skipIf(!realServer)('a server on PATH is used and named', async () => {
  const folder = temporaryFolder()
  const binary = fakeProgram(folder, 'redis-server', `exec "${realServer}" "$@"`)
  const service = await start(folder)
  onTestFinished(() => service.stop())
  expect(service.kind).toBe('path')
  expect(service.source).toMatch(/^(Redis|Valkey) \d+\.\d+\.\d+, found on PATH/)
  expect(service.source).toContain(binary)
  const client = new Redis(service.url)
  const info = await client.info('server')
  client.disconnect()
  expect(info).toContain(`process_id:${service.pid}\r`)
})

test('valkey-server on PATH serves as well, and its failure is not hidden by a later source', async () => {
  const folder = temporaryFolder()
  fakeProgram(folder, 'valkey-server', 'echo broken installation; exit 3')
  await expect(start(folder, { allowEmulator: true })).rejects.toThrow(/valkey-server ended.*broken installation/)
})

test('without a program on PATH every source says why, in order', async () => {
  expect(await reasonsOf(start(temporaryFolder()))).toEqual([
    'REDIS_URL is not set',
    'neither redis-server nor valkey-server is on PATH',
    'docker is not on PATH',
    'apt-get is not on PATH',
    'the emulator is not accepted here',
  ])
})

test('a Docker client without an engine, and an engine without the image, are passed over', async () => {
  const silent = temporaryFolder()
  fakeProgram(silent, 'docker', 'echo no engine >&2; exit 1')
  expect((await reasonsOf(start(silent)))[2]).toBe('no Docker engine answers')
  const empty = temporaryFolder()
  fakeProgram(empty, 'docker', '[ "$1" = info ] || { echo no such image >&2; exit 125; }')
  expect((await reasonsOf(start(empty)))[2]).toMatch(/^Docker answers, but .* does not run: .*no such image/)
})

test('an apt-get that fails is an error with its words', async () => {
  const folder = temporaryFolder()
  fakeProgram(folder, 'apt-get', 'echo E: no network >&2; exit 100')
  fakeProgram(folder, 'dpkg', 'exit 0')
  vi.stubEnv('PATH', folder)
  onTestFinished(() => void vi.unstubAllEnvs())
  const failed = fetchAptServer({ packageName: 'redis-server' }, temporaryFolder())
  await expect(failed).rejects.toThrow('E: no network')
})

test('the emulator comes last, only when allowed, and says what it is', async () => {
  const service = await start(temporaryFolder(), { allowEmulator: true })
  onTestFinished(() => service.stop())
  expect(service.kind).toBe('emulator')
  expect(service.source).toContain('emulator')
  const client = new Redis(service.url)
  onTestFinished(() => client.disconnect())
  expect(await client.eval('return redis.call("INCR", KEYS[1])', 1, 'n')).toBe(1)
  await expect(service.restart()).rejects.toThrow('emulator keeps nothing')
})

test('the emulator does not stand in for a server with persistence', async () => {
  const reasons = await reasonsOf(start(temporaryFolder(), { allowEmulator: true, persistence: 'aof' }))
  expect(reasons.at(-1)).toBe('the emulator has no persistence')
})

test('the error names a way to install Redis on each platform', () => {
  expect(installAdvice('linux')).toContain('apt-get install redis-server')
  expect(installAdvice('darwin')).toContain('brew install redis')
  expect(installAdvice('win32')).toContain('docker run')
})
