import { expect, test } from 'vitest'
import { useRedis } from '../../../test/support/redis.ts'
import { startSmtpSink } from '../../../workers/services/smtp.ts'
import { useSluice } from './sluice-process.ts'

const redis = useRedis(import.meta.url)
const sluice = useSluice(redis)

test('wrong settings of a worker are told as the program tells them, and end it with 2', async () => {
  const { code, stdout, stderr } = await sluice.run(['worker', 'db-writes'], { env: { RATE: 'fast' } })
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(stderr).toMatch(/^sluice db-writes: \d settings are wrong:\n {2}RATE: rate must be/)
})

test('--redis-url and --prefix stand in for the variables of a worker, which runs until SIGTERM', async () => {
  const sink = await startSmtpSink()
  const args = ['worker', 'email', '--redis-url', redis.url, '--prefix', redis.prefix]
  const env = { RATE: '5/s', SMTP_URL: sink.url, REDIS_URL: 'redis://127.0.0.1:1', PREFIX: 'another' }
  const running = sluice.start(args, { env })
  await expect.poll(() => running.stdout, { timeout: 60_000, interval: 20 }).toContain('"msg":"ready"')
  expect(await redis.client().exists(`${redis.prefix}:emails:meta:shape`)).toBe(1)
  running.child.kill('SIGTERM')
  expect((await running.ended).code).toBe(0)
  await sink.stop()
})

test('the gateway has its own help, and --new-token makes a token', async () => {
  const { code, stdout } = await sluice.run(['gateway', '--new-token', 'shop'])
  expect(code).toBe(0)
  expect(stdout).toMatch(/^token, for its holder alone: \S+\nentry, for TOKEN_FILE: \{"name":"shop"/)
  expect((await sluice.run(['gateway', '--help'])).stdout).toContain('Settings, from the environment:')
})
