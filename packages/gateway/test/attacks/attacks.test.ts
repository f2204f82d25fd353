import { afterAll, beforeAll, expect, test } from 'vitest'
import { useProcesses } from '../../../../test/support/processes.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { ANY, post, type RunningGateway, startGateway } from '../program/support.ts'
import { ATTACKS, askWithKeys } from '../support/attacks.ts'
import { startCallers } from '../support/callers.ts'

/** What one address may ask in an hour, and how many addresses have a state of their own. */
const PER_ADDRESS = 3000
const MAX_KEYS = 500
/** More than fit into the states that there are; 1 million: test/slow/gateway-attacks.test.ts. */
const KEYS = MAX_KEYS + 2 * PER_ADDRESS
/** Each test asks on behalf of an address of its own: how long it takes uses up none of what the others may ask. */
const addressOf = (test: number) => `192.0.2.${test}`

const redis = useRedis(import.meta.url)
const processes = useProcesses()
let gateway: RunningGateway

beforeAll(async () => {
  const limits = [
    {
      ...{ name: 'addresses', per: 'address', rate: `${PER_ADDRESS}/day`, burst: PER_ADDRESS, maxKeys: MAX_KEYS },
      // A busy machine answers later than the default allows, and the gateway then answers 503.
      timeoutMs: 20_000,
    },
  ]
  const config = { queues: { jobs: ANY }, limits, shedding: { maxRequestsInFlight: 200 } }
  gateway = await startGateway(processes, config, {
    ...{ REDIS_URL: redis.url, PREFIX: redis.prefix, LIMITS_PREFIX: redis.prefix, LOG_LEVEL: 'info' },
    ...{ REQUEST_TIMEOUT_MS: '1000', TRUST_PROXY: 'loopback' },
  })
})

afterAll(async () => {
  expect(await gateway.program.kill('SIGTERM'), gateway.program.output).toEqual({ code: 0, signal: null })
})

test.each(ATTACKS)('%s is refused, and others are answered all the while', async (name, attack, times, answers) => {
  const address = addressOf(ATTACKS.findIndex(([one]) => one === name) + 1)
  const callers = startCallers(gateway.url, { address })
  const statuses = await attack(gateway.url, times)
  expect(statuses.filter((status) => !answers.includes(status))).toEqual([])
  expect(statuses).toContain(answers[0])
  expect(statuses).toHaveLength(times)
  const { statuses: others } = await callers.stop()
  expect(others.length).toBeGreaterThan(0)
  expect(others.filter((status) => status !== 202)).toEqual([])
})

test(`${KEYS} distinct keys share a state above the bound, and others are answered all the while`, async () => {
  const address = addressOf(ATTACKS.length + 1)
  // Afterwards there would be no state left for it.
  expect((await post(gateway.url, 'jobs', 'good', { 'x-forwarded-for': address })).status).toBe(202)
  const callers = startCallers(gateway.url, { count: 2, everyMs: 50, address })
  const counts = await askWithKeys(gateway.url, KEYS)
  const { statuses: others } = await callers.stop()
  expect(others.filter((status) => status !== 202)).toEqual([])
  // Those that share a state are more than it allows.
  expect([...counts.keys()].toSorted()).toEqual(['404', '429'])
  expect((counts.get('404') ?? 0) + (counts.get('429') ?? 0)).toBe(KEYS)
  const keys = await redis.client().keys(`${redis.prefix}:limit:*`)
  expect(keys.length).toBeGreaterThan(100)
  expect(keys.length).toBeLessThan(2 * MAX_KEYS)
})
