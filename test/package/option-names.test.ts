import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { dashboard } from '../../packages/dashboard/src/index.ts'
import { createGatewayClient } from '../../packages/gateway/src/client/index.ts'
import {
  byAddress,
  byApiKey,
  fleetShedder,
  processShedder,
  requestsInFlight,
  tokens,
} from '../../packages/gateway/src/index.ts'
import { createMetrics, startMetricsServer } from '../../packages/metrics/src/index.ts'
import { InvalidInputError } from '../../src/errors.ts'
import { createLimiter } from '../../src/limits/index.ts'

// What plain JavaScript can write: a name that is wrong must not switch off in silence what it was to switch on.

const connection = { host: '127.0.0.1', lazyConnect: true }
const queue = { meter: async () => ({}) } as never
const tiers = { gold: { rates: '10/s' } }

const MADE: readonly (readonly [what: string, make: (options: object) => unknown, options: object, wrong: string])[] = [
  ['dashboard', (options) => dashboard(options as never), { connection, token: 'tokens.json' }, 'token'],
  ['dashboard', (options) => dashboard(options as never), { connection, showdata: true }, 'showdata'],
  ['createMetrics', (options) => createMetrics(options as never), { connection, queue: ['a'] }, 'queue'],
  [
    'createGatewayClient',
    (options) => createGatewayClient(options as never),
    { url: 'http://x', tokens: 'x' },
    'tokens',
  ],
  ['byAddress', (options) => byAddress(options), { trustproxy: ['loopback'] }, 'trustproxy'],
  ['byApiKey', (options) => byApiKey(options), { headers: 'x-key' }, 'headers'],
  ['tokens', (options) => tokens(options as never), { file: 'tokens.json', interval: 5 }, 'interval'],
  ['requestsInFlight', (options) => requestsInFlight(options as never), { max: 5, clases: [] }, 'clases'],
  ['processShedder', (options) => processShedder(options), { maxLoopUtilization: 0.5 }, 'maxLoopUtilization'],
  ['fleetShedder', (options) => fleetShedder(options as never), { queue, depthshare: 0.5 }, 'depthshare'],
]

test.each(MADE)('%s refuses an option that it does not have', (what, make, options, wrong) => {
  const made = () => make(options)
  expect(made).toThrow(InvalidInputError)
  expect(made).toThrow(`${what} has no option '${wrong}'; it has `)
})

test('so does the server of metrics', async () => {
  const metrics = createMetrics({ connection })
  onTestFinished(() => metrics.close())
  const started = startMetricsServer({ metrics, port: 0, hots: '0.0.0.0' } as never)
  await expect(started).rejects.toThrow("startMetricsServer has no option 'hots'; it has metrics, host, port")
})

test('so does a tier of a limiter, which would have the rate of all others', () => {
  const redis = new Redis(connection)
  const made = () => createLimiter(redis, { name: 'x', rate: '1/s', tiers: tiers as never, tierOf: () => 'gold' })
  expect(made).toThrow("tier 'gold' has no option 'rates'; it has rate, burst, concurrency")
})
