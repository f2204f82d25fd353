import { expect, test } from 'vitest'
import { SentinelSetup } from './support/sentinel.ts'
import { summary, Traffic } from './support/traffic.ts'

const PREFIX = 'bull'
const KEY = `${PREFIX}:replicated`

// Fault table, row 8. `npm run test:clusters` has the long form, and a network that is parted.
test('Sentinel with two replicas, under 300/s: the master is killed, another one goes on, and what a replica confirmed is there', async () => {
  const setup = await SentinelSetup.start()
  const shape = { durability: { replicas: 1, timeoutMs: 500 } }
  const connections = [1, 2].map(() => setup.connection())
  const traffic = await Traffic.start({ prefix: PREFIX, producers: connections, workers: connections, shape })
  const { admin } = await setup.master()
  const gap = await traffic.through([admin, KEY], () => setup.kill())
  const account = await traffic.end()
  process.stdout.write(summary('Sentinel, the master killed', account, gap))
  expect(account).toMatchObject({ lost: [], unexpected: [], mishaps: [], losses: 1 })
  expect(account.excess).toBeLessThanOrEqual(0)
}, 90_000)
