import { execFileSync, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AddressInfo, connect } from 'node:net'
import { join } from 'node:path'
import { createServer as createTlsServer } from 'node:tls'
import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { checkRedis, reconnectDelayMs } from '../../src/programs/connection.ts'
import { StartError } from '../../src/programs/errors.ts'
import { findFreePort } from '../../workers/services/free-port.ts'
import { startRedis } from '../../workers/services/redis.ts'
import { useRedis } from '../support/redis.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const redis = useRedis(import.meta.url)

test('reconnecting is spread between 1 and 20 seconds', () => {
  expect([1, 2, 5, 1000].map((attempt) => reconnectDelayMs(attempt, 0))).toEqual([1000, 1000, 1000, 1000])
  expect([1, 2, 5, 1000].map((attempt) => reconnectDelayMs(attempt, 1))).toEqual([2000, 4000, 20_000, 20_000])
  expect(reconnectDelayMs(5, 0.5)).toBe(10_500)
})

test('a Redis that answers and evicts nothing is accepted', async () => {
  await expect(checkRedis(redis.url)).resolves.toBeUndefined()
})

test('a Redis that may evict jobs is refused, with the remedy', async () => {
  const evicting = await startRedis({ ignoreGiven: true, args: ['--maxmemory-policy', 'allkeys-lru'] })
  try {
    const check = checkRedis(evicting.url)
    await expect(check).rejects.toThrow(StartError)
    await expect(check).rejects.toThrow(/expected maxmemory-policy noeviction, got allkeys-lru \(set it with/)
  } finally {
    await evicting.stop()
  }
})

test('a Redis that is not there is named, with the reason and without the password', async () => {
  const port = await findFreePort()
  const failure = checkRedis(`redis://:CANARY@127.0.0.1:${port}`)
  await expect(failure).rejects.toThrow(StartError)
  await expect(failure).rejects.toThrow(`cannot use Redis at 127.0.0.1:${port}: connect ECONNREFUSED`)
  await expect(failure).rejects.not.toThrow(/CANARY/)
})

/** Why there is no certificate to refuse, or undefined. */
const noCertificate = spawnSync('openssl', ['version']).status === 0 ? undefined : 'openssl is not installed'

/** A server that speaks TLS before a Redis, with a certificate for a name that nobody vouches for. */
async function startTls(name: string, target: string): Promise<number> {
  const folder = temporaryFolder()
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
  const asked = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '1', '-subj', `/CN=${name}`]
  execFileSync('openssl', [...asked, '-keyout', key, '-out', cert], { stdio: 'ignore' })
  const { hostname, port } = new URL(target)
  const server = createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }, (socket) => {
    const redis = connect(Number(port), hostname)
    for (const end of [socket, redis]) end.on('error', () => end.destroy())
    socket.pipe(redis).pipe(socket)
  })
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

/** Refused before anything is built, with a reason and without the password. */
async function expectRefused(url: string, reason: RegExp): Promise<void> {
  const failure = await checkRedis(url).catch((error: unknown) => error)
  expect(failure).toBeInstanceOf(StartError)
  expect((failure as StartError).message).toMatch(reason)
  expect(`${failure} ${(failure as StartError).stack}`).not.toContain('CANARY')
}

// Fault table, row 33.
test('a wrong password is refused, and so is none', async () => {
  const guarded = await startRedis({ ignoreGiven: true })
  onTestFinished(() => guarded.stop())
  const admin = new Redis(guarded.url)
  await admin.config('SET', 'requirepass', 'right')
  admin.disconnect()
  const { host, port } = guarded
  await expectRefused(`redis://:CANARY@${host}:${port}`, /WRONGPASS/)
  await expectRefused(`redis://${host}:${port}`, /NOAUTH/)
  await expect(checkRedis(`redis://:right@${host}:${port}`)).resolves.toBeUndefined()
})

test.skipIf(noCertificate)(
  `an untrusted certificate is refused${noCertificate ? ` (${noCertificate})` : ''}`,
  async () => {
    const port = await startTls('127.0.0.1', redis.url)
    await expectRefused(`rediss://:CANARY@127.0.0.1:${port}`, /self-signed certificate/)
  },
)
