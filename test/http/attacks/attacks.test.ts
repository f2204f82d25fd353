import { afterAll, beforeAll, expect, test } from 'vitest'
import { ANY, type RunningGateway, startGateway } from '../../programs/gateway-support.ts'
import { useProcesses } from '../../support/processes.ts'
import { useRedis } from '../../support/redis.ts'
import { ATTACKS, askWithKeys } from '../support/attacks.ts'
import { startCallers } from '../support/callers.ts'

/** 1 million: test/slow/gateway-attacks.test.ts. */
const KEYS = 20_000

const redis = useRedis(import.meta.url)
const processes = useProcesses()
let gateway: RunningGateway

beforeAll(async () => {
  const limits = [{ name: 'addresses', per: 'address', rate: '3000/h', burst: 3000, maxKeys: 500 }]
  const config = { queues: { jobs: ANY }, limits, shedding: { maxRequestsInFlight: 200 } }
  gateway = await startGateway(processes, config, {
    ...{ REDIS_URL: redis.url, PREFIX: redis.prefix, LIMITS_PREFIX: redis.prefix, LOG_LEVEL: 'info' },
    ...{ REQUEST_TIMEOUT_MS: '1000', TRUST_PROXY: 'loopback' },
  })
})

afterAll(async () => {
  expect(await gateway.program.kill('SIGTERM'), gateway.program.output).toEqual({ code: 0, signal: null })
})

test.each(ATTACKS)('%s is refused, and others are answered all the while', async (_, attack, times, answers) => {
  const callers = startCallers(gateway.url)
  const statuses = await attack(gateway.url, times)
  expect(statuses.filter((status) => !answers.includes(status))).toEqual([])
  expect(statuses).toContain(answers[0])
  expect(statuses).toHaveLength(times)
  const { statuses: others } = await callers.stop()
  expect(others.length).toBeGreaterThan(0)
  expect(others.filter((status) => status !== 202)).toEqual([])
})

test(`${KEYS} distinct keys share a state above the bound, and others are answered all the while`, async () => {
  const callers = startCallers(gateway.url, { count: 2, everyMs: 50 })
  const counts = await askWithKeys(gateway.url, KEYS)
  const { statuses: others } = await callers.stop()
  expect(others.filter((status) => status !== 202)).toEqual([])
  // Those that share a state are more than it allows.
  expect([...counts.keys()].toSorted()).toEqual(['404', '429'])
  expect((counts.get('404') ?? 0) + (counts.get('429') ?? 0)).toBe(KEYS)
  const keys = await redis.client().keys(`${redis.prefix}:limit:*`)
  expect(keys.length).toBeGreaterThan(100)
  expect(keys.length).toBeLessThan(KEYS / 10)
}, 60_000)
