import { expect, test } from 'vitest'
import { useProcesses } from '../../../../test/support/processes.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { withQueue } from '../../../workers/test/queues.ts'
import { startGateway, tokenFile } from '../program/support.ts'

const IN_FLIGHT = 20
const CAPACITY = 200
const RESERVED = 30
const CRITICAL_CALLERS = 6
const BULK_CALLERS = 10 * IN_FLIGHT

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

test('10 times more requests than may be in flight: no critical one is refused while it has reserved places', {
  timeout: 180_000,
}, async () => {
  const { file, tokens } = tokenFile({ bulk: { trafficClass: 'sheddable' }, pay: { trafficClass: 'critical' } })
  const shape = { rate: '1/h', capacity: CAPACITY, reservedPlaces: { 1: RESERVED } }
  const config = {
    queues: { jobs: { schema: true, allow: ['priority'], shape } },
    shedding: { maxRequestsInFlight: IN_FLIGHT, queues: { jobs: {} } },
  }
  const { program, url } = await startGateway(processes, config, {
    ...{ REDIS_URL: redis.url, PREFIX: redis.prefix, LIMITS_PREFIX: redis.prefix, TOKEN_FILE: file, LOG_LEVEL: 'info' },
  })
  const send = async (token: string, body: object): Promise<number> => {
    const headers = { 'content-type': 'application/json', ...bearer(token) }
    const response = await fetch(`${url}/queues/jobs/jobs`, { method: 'POST', headers, body: JSON.stringify(body) })
    await response.arrayBuffer()
    return response.status
  }
  let critical = RESERVED
  const payments: number[] = []
  const pay = async () => {
    while (critical-- > 0) payments.push(await send(tokens.pay, { data: 'pay', opts: { priority: 1 } }))
  }
  const bulk = { admitted: 0, shed: 0 }
  const sendBulk = async (): Promise<boolean> => {
    const status = await send(tokens.bulk, { data: 'bulk' })
    if (status === 202) bulk.admitted += 1
    if (status === 503) bulk.shed += 1
    return status === 202
  }
  // Each caller has its answer before it stops, so that what was admitted is what was answered.
  const flood = async () => {
    while (payments.length < RESERVED || bulk.shed <= 10 * bulk.admitted) await sendBulk()
  }
  await withQueue(redis, 'jobs', async (queue) => {
    const flooding = Promise.all(Array.from({ length: BULK_CALLERS }, flood))
    // Only once there is too much of it.
    await expect.poll(() => Math.min(bulk.admitted, bulk.shed)).toBeGreaterThan(0)
    await Promise.all([flooding, ...Array.from({ length: CRITICAL_CALLERS }, pay)])
    expect(payments).toEqual(Array(RESERVED).fill(202))
    // A caller by itself is refused only where its class has no room left.
    while (await sendBulk());
    expect(bulk.admitted).toBeLessThanOrEqual(CAPACITY - RESERVED)
    expect(await queue.count()).toBe(bulk.admitted + RESERVED)
  })
  await program.kill('SIGTERM')
})
