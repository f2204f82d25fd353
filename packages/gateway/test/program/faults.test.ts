import { expect, onTestFinished, test } from 'vitest'
import { adminOf, startOwnRedis } from '../../../../test/faults/support/own-redis.ts'
import { useProcesses } from '../../../../test/support/processes.ts'
import { type RedisProxy, startProxy } from '../../../../test/support/proxy.ts'
import { ANY, post, startGateway } from './support.ts'

const WAIT = { timeout: 60_000, interval: 50 }
const BURST = 20

const processes = useProcesses()
type Admin = ReturnType<typeof adminOf>

/** Keeps a Redis busy until the script is killed. */
async function keepBusy(admin: Admin, url: string): Promise<void> {
  await admin.config('SET', 'lua-time-limit', '50')
  const other = adminOf(url)
  other.eval('while true do end', 0).catch(() => {})
  await expect.poll(() => admin.ping().catch((error: Error) => error.message), WAIT).toContain('BUSY')
}

test.each<
  [
    string,
    (admin: Admin, url: string, proxy: RedisProxy) => Promise<unknown>,
    (admin: Admin, proxy: RedisProxy) => unknown,
  ]
>([
  [
    'is out of memory',
    (admin) => admin.config('SET', 'maxmemory', '1'),
    (admin) => admin.config('SET', 'maxmemory', '0'),
  ],
  ['is busy with a script of somebody else', keepBusy, (admin) => admin.script('KILL')],
  ['answers nothing', async (_admin, _url, proxy) => proxy.blackhole(), (_admin, proxy) => proxy.restore()],
  ['is not there', (_admin, _url, proxy) => proxy.refuse(), (_admin, proxy) => proxy.resume()],
])('while Redis %s it answers 503 and does not hang; afterwards it goes on', async (_, breakIt, mendIt) => {
  const service = await startOwnRedis()
  const proxy = await startProxy(service.url)
  onTestFinished(() => proxy.stop())
  const admin = adminOf(service.url)
  const config = { queues: { mail: ANY }, redisTimeoutMs: 1000 }
  const { program, url } = await startGateway(processes, config, { REDIS_URL: `${proxy.url}?commandTimeout=1000` })
  await expect.poll(async () => (await post(url, 'mail', 'before')).status, WAIT).toBe(202)
  await breakIt(admin, service.url, proxy)
  const refused = await Promise.all(Array.from({ length: BURST }, (_, i) => post(url, 'mail', i)))
  for (const response of refused) {
    expect(response.status).toBe(503)
    expect(Number(response.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
    expect(response.headers.get('content-type')).toBe('application/problem+json')
    expect(response.headers.get('cache-control')).toBe('no-store')
  }
  expect((await fetch(`${url}/healthz`)).status).toBe(200)
  expect((await fetch(`${url}/readyz`)).status).toBe(503)
  await mendIt(admin, proxy)
  await expect.poll(async () => (await post(url, 'mail', 'after')).status, WAIT).toBe(202)
  await expect.poll(async () => (await fetch(`${url}/readyz`)).status, WAIT).toBe(200)
  expect(await program.kill('SIGTERM'), program.output).toEqual({ code: 0, signal: null })
  const errors = program.output.split('\n').filter((line) => line.includes('"level":50'))
  expect(errors.filter((line) => line.includes('admissions fail'))).toHaveLength(1)
  expect(errors.length).toBeLessThan(BURST)
})
