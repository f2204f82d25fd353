import { expect, test } from 'vitest'
import { ReplicatedCluster } from './support/replicated-cluster.ts'
import { summary, Traffic } from './support/traffic.ts'

const PREFIX = '{b}'
const KEY = `${PREFIX}:replicated`

// Fault table, rows 8 and 22. `npm run test:clusters` has the long form, and a network that is parted.
test('a cluster with replicas, under 300/s: a failover by agreement, a slot that moves away and back, a master killed', async () => {
  const cluster = await ReplicatedCluster.start()
  const [producers, workers] = [1, 2].map(() => [cluster.connect(), cluster.connect()])
  const traffic = await Traffic.start({ prefix: PREFIX, producers: producers ?? [], workers: workers ?? [] })
  const master = await cluster.masterOf(PREFIX)
  const other = await cluster.anotherMaster(PREFIX)
  await traffic.through([master.admin, KEY], async () => {
    await cluster.moveSlot(PREFIX, other)
    await traffic.goOn()
    await cluster.moveSlot(PREFIX, master)
  })
  expect(traffic.fleet.losses).toEqual([])
  await traffic.through([master.admin, KEY], () => cluster.failOver(master))
  expect(traffic.fleet.losses).toMatchObject([{ policy: 'hold' }])
  const promoted = await cluster.masterOf(PREFIX)
  expect(promoted).not.toBe(master)
  const gap = await traffic.through([promoted.admin, KEY], () => cluster.kill(promoted, PREFIX))
  const account = await traffic.end()
  process.stdout.write(summary('a cluster, the last master killed', account, gap))
  expect(account).toMatchObject({ lostThoughReplicated: [], unexpected: [], mishaps: [] })
  expect(account.worst.excess).toBeLessThanOrEqual(0)
  expect(traffic.fleet.losses).toMatchObject([{ policy: 'hold' }, { policy: 'hold' }])
})
