import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { useRedis } from '../../../test/support/redis.ts'
import { findFreePort } from '../../../workers/services/free-port.ts'
import { startRedis } from '../../../workers/services/redis.ts'
import { noCertificate, startTlsFront } from '../../workers/test/tls-front.ts'
import { checkRedis, reconnectDelayMs } from '../src/connection.ts'
import { StartError } from '../src/errors.ts'

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

test('rights for some of the queues are refused, and the first queue without them is named', async () => {
  const guarded = await startRedis({ ignoreGiven: true })
  onTestFinished(() => guarded.stop())
  const admin = new Redis(guarded.url)
  await admin.call('ACL', 'SETUSER', 'some', 'on', '>right', '~bull:a:*', '~bull:b:*', '&*', '+@all')
  admin.disconnect()
  const check = (...queueNames: string[]) => {
    const url = `redis://some:right@${guarded.host}:${guarded.port}`
    return checkRedis(url, { role: 'gateway', prefix: 'bull', queueNames })
  }
  await expect(check('a', 'b')).resolves.toBeUndefined()
  await expect(check('a', 'b', 'c')).rejects.toThrow(
    /^queue "c": the user lacks rights of a gateway: .*\(grant it what/,
  )
})

test.skipIf(noCertificate !== undefined)(
  `an untrusted certificate is refused${noCertificate ? ` (${noCertificate})` : ''}`,
  async () => {
    const { port } = await startTlsFront(redis.url, 'IP:127.0.0.1')
    await expectRefused(`rediss://:CANARY@127.0.0.1:${port}`, /self-signed certificate/)
  },
)
