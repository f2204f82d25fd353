import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { expect, onTestFinished, test, vi } from 'vitest'
import { LOOK_MS } from '../../src/redis/connection-watch.ts'
import { Fleet } from './support/fleet.ts'
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
  expect(account.worst.excess).toBeLessThanOrEqual(0)
})

/** What is used of a client of ioredis that learns of failovers. */
interface Detecting {
  readonly status: string
  readonly stream: { destroy(): void }
  readonly connector: { readonly failoverDetector: { disconnect(): void } }
}

/** As if a Sentinel named another master just while the client connects: ioredis then ends it for good. */
async function endFor(client: Detecting): Promise<void> {
  const { failoverDetector } = client.connector
  client.stream.destroy()
  // The state has no event.
  while (client.status !== 'connecting') await sleep(1)
  failoverDetector.disconnect()
  await expect.poll(() => client.status, { interval: 5 }).toBe('end')
}

test('a client that ioredis ended during a failover is reconnected, and close leaves no connection to a Sentinel', async () => {
  const setup = await SentinelSetup.start()
  const fleet = new Fleet()
  const connection = { ...setup.connection(), retryStrategy: () => 200 }
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  // With ioredis's own connector.
  const own = new Redis(connection)
  own.on('error', () => {})
  onTestFinished(() => own.disconnect())
  const queue = fleet.queue('mail', { connection: own, shape: { rate: '50/s' } })
  const worker = fleet.worker('mail', { connection })
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()])
  const client = own as unknown as Detecting
  await endFor(client)
  vi.advanceTimersByTime(LOOK_MS)
  await expect.poll(() => client.status).toBe('ready')
  const { id } = await queue.add('job', {})
  await fleet.until(() => fleet.completed.includes(id as string))
  vi.useRealTimers()
  await Promise.all([queue.close(), worker.close()])
  own.disconnect()
  await expect.poll(() => setup.clientsOfSentinels()).toBe(0)
})
