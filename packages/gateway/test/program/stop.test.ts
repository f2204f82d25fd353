import { describe } from 'vitest'
import { expect, onTestFinished, test, useConcurrentTests } from '../../../../test/support/concurrent.ts'
import { useProcesses } from '../../../../test/support/processes.ts'
import { startProxy } from '../../../../test/support/proxy.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { withQueue } from '../../../workers/test/queues.ts'
import { RawConnection } from '../../../workers/test/raw-connection.ts'
import { ANY, post, startGateway } from './support.ts'

const WAIT = { timeout: 60_000, interval: 20 }

const redis = useRedis(import.meta.url)
useConcurrentTests()
const processes = useProcesses()

/** Who sends slowly has more time than stopping has. */
const PATIENT = { REQUEST_TIMEOUT_MS: '600000', SHUTDOWN_TIMEOUT_MS: '10000' }

/** A gateway whose Redis is behind a proxy. */
async function startProxied(queue: string, more: Record<string, string> = {}) {
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const env = { REDIS_URL: proxy.url, PREFIX: redis.prefix, LIMITS_PREFIX: redis.prefix, ...more }
  return { proxy, ...(await startGateway(processes, { queues: { [queue]: ANY } }, env)) }
}

describe('SIGTERM', () => {
  test('answers everything that it admitted, closes its connections and ends with 0', async () => {
    await withQueue(redis, 'stop', async (queue) => {
      const { proxy, program, url } = await startProxied('stop', PATIENT)
      const [idle, used, late] = [
        await RawConnection.open(url),
        await RawConnection.open(url),
        await RawConnection.open(url),
      ]
      used.send('GET /healthz HTTP/1.1\r\nhost: gateway\r\n\r\n')
      await used.until((text) => text.includes('{"ok":true'))
      late.send('POST /queues/stop/jobs HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n')
      expect((await post(url, 'stop', 'scripts are known')).status).toBe(202)
      proxy.latency(3000)
      const running = Array.from({ length: 5 }, (_, i) => post(url, 'stop', { i }))
      // They are in the queue, and their answers are on their way.
      await expect.poll(() => queue.count(), WAIT).toBe(6)
      const exited = program.kill('SIGTERM')
      for (const response of await Promise.all(running)) {
        expect(response.status).toBe(202)
        expect(response.headers.get('connection')).toBe('close')
      }
      expect(await exited, program.output).toEqual({ code: 0, signal: null })
      await Promise.all([idle.closed, used.closed, late.closed])
      expect(late.received).toBe('')
    })
  })

  test('waits for a request that arrives only as long as it may take', async () => {
    const { program, url } = await startProxied('slow', { REQUEST_TIMEOUT_MS: '1000' })
    const slow = await RawConnection.open(url)
    slow.send('POST /queues/slow/jobs HTTP/1.1\r\nhost: gateway\r\nexpect: 100-continue\r\n')
    slow.send('content-type: application/json\r\ncontent-length: 100\r\n\r\n')
    await slow.until((text) => text.includes('100 Continue'))
    expect(await program.kill('SIGTERM'), program.output).toEqual({ code: 0, signal: null })
    await slow.closed
    // Not the year of a date.
    expect(slow.received).not.toContain('HTTP/1.1 202')
  })

  test('is told by /readyz while it drains', async () => {
    const { program, url } = await startProxied('drain', { DRAIN_MS: '600000' })
    expect((await fetch(`${url}/readyz`)).status).toBe(200)
    const exited = program.kill('SIGTERM')
    await expect.poll(async () => (await fetch(`${url}/readyz`)).status, WAIT).toBe(503)
    expect(await (await fetch(`${url}/readyz`)).json()).toEqual({ ok: false, reason: 'stopping' })
    const response = await post(url, 'drain', {})
    expect([response.status, response.headers.get('connection')]).toEqual([202, 'close'])
    program.kill('SIGTERM')
    expect(await exited).toEqual({ code: 1, signal: null })
  })

  test('that takes too long ends it with 1 and one line', async () => {
    const { program, url, proxy } = await startProxied('long', { DRAIN_MS: '600000', SHUTDOWN_TIMEOUT_MS: '1000' })
    expect((await post(url, 'long', {})).status).toBe(202)
    expect(await program.kill('SIGTERM')).toEqual({ code: 1, signal: null })
    expect(program.output).toContain('sluice gateway: requests did not finish within 1000 ms')
    await proxy.stop()
  })
})

test('a listener in the way ends it with 1 and one line', async () => {
  const { program, url } = await startProxied('first')
  const env = { REDIS_URL: redis.url, PREFIX: redis.prefix, PORT: new URL(url).port }
  await expect(startGateway(processes, { queues: { first: ANY } }, env)).rejects.toThrow('EADDRINUSE')
  await program.kill('SIGTERM')
})

test('without its Redis it ends with 1 and one line', async () => {
  const env = { REDIS_URL: 'redis://user:CANARY@127.0.0.1:1' }
  const start = startGateway(processes, { queues: { none: ANY } }, env)
  await expect(start).rejects.toThrow('sluice gateway: cannot use Redis at 127.0.0.1:1')
  await expect(start).rejects.not.toThrow('CANARY')
})
