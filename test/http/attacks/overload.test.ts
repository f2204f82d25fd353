import autocannon from 'autocannon'
import { expect, test } from 'vitest'
import { post, startGateway, tokenFile } from '../../programs/gateway-support.ts'
import { withQueue } from '../../programs/queues.ts'
import { useProcesses } from '../../support/processes.ts'
import { useRedis } from '../../support/redis.ts'

const IN_FLIGHT = 20
const CAPACITY = 500
const RESERVED = 100
const CRITICAL_CALLERS = 3

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

test('10 times more requests than may be in flight: no critical one is refused while it has reserved places', async () => {
  const { file, tokens } = tokenFile({ bulk: { trafficClass: 'sheddable' }, pay: { trafficClass: 'critical' } })
  const shape = { rate: '1/h', capacity: CAPACITY, reservedPlaces: { 1: RESERVED } }
  const config = {
    queues: { jobs: { schema: true, allow: ['priority'], shape } },
    shedding: { maxRequestsInFlight: IN_FLIGHT, queues: { jobs: {} } },
  }
  const { program, url } = await startGateway(processes, config, {
    ...{ REDIS_URL: redis.url, PREFIX: redis.prefix, LIMITS_PREFIX: redis.prefix, TOKEN_FILE: file, LOG_LEVEL: 'info' },
  })
  const flood = autocannon({
    url: `${url}/queues/jobs/jobs`,
    method: 'POST',
    headers: { 'content-type': 'application/json', ...bearer(tokens.bulk) },
    body: JSON.stringify({ data: 'bulk' }),
    connections: 10 * IN_FLIGHT,
    duration: 4,
  })
  let left = RESERVED
  const statuses: number[] = []
  const pay = async () => {
    while (left-- > 0) {
      const body = JSON.stringify({ data: 'pay', opts: { priority: 1 } })
      const headers = { 'content-type': 'application/json', ...bearer(tokens.pay) }
      statuses.push((await fetch(`${url}/queues/jobs/jobs`, { method: 'POST', headers, body })).status)
    }
  }
  await withQueue(redis, 'jobs', async (queue) => {
    // Only once others fill all that they can get.
    await expect.poll(() => queue.count(), { timeout: 10_000 }).toBeGreaterThan(0)
    await Promise.all(Array.from({ length: CRITICAL_CALLERS }, pay))
    const { '2xx': admitted, non2xx: refused, '5xx': shed } = await flood
    expect(statuses.filter((status) => status !== 202)).toEqual([])
    expect(statuses).toHaveLength(RESERVED)
    expect(admitted).toBeLessThanOrEqual(CAPACITY - RESERVED)
    expect(refused).toBeGreaterThan(10 * admitted)
    expect(shed).toBeGreaterThan(0)
    expect(await queue.count()).toBe(admitted + RESERVED)
  })
  expect((await post(url, 'jobs', 'bulk', bearer(tokens.bulk))).status).toBeGreaterThanOrEqual(429)
  await program.kill('SIGTERM')
})
