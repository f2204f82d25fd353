import { expect, test } from 'vitest'
import { ReplicatedCluster } from '../faults/support/replicated-cluster.ts'
import { SentinelSetup } from '../faults/support/sentinel.ts'
import { type Account, course, type Gap, summary, Traffic } from '../faults/support/traffic.ts'

/** How often each fault happens. */
const ROUNDS = Number(process.env.CLUSTER_ROUNDS ?? 3)
const PREFIX = '{b}'
const KEY = `${PREFIX}:replicated`
const TIMEOUT_MS = ROUNDS * 120_000

/** A parted master must refuse before another one takes over. */
const DOWN_AFTER_PARTED_MS = 3000

interface Ground {
  readonly cluster: ReplicatedCluster
  readonly traffic: Traffic
}

/** One producer and one worker stay with the old master where the network is parted. */
async function openCluster(): Promise<Ground> {
  const cluster = await ReplicatedCluster.start()
  const [producers, workers] = [1, 2].map(() => [cluster.connect(), cluster.connectAside()])
  return { cluster, traffic: await Traffic.start({ prefix: PREFIX, producers: producers!, workers: workers! }) }
}

async function openSentinel(downAfterMs?: number) {
  const setup = await SentinelSetup.start(downAfterMs)
  const connections = [setup.connection(), setup.connectionAside()]
  return { setup, traffic: await Traffic.start({ prefix: PREFIX, producers: connections, workers: connections }) }
}

const longest = (gaps: readonly Gap[]) => ({
  startsMs: Math.max(...gaps.map(({ startsMs }) => startsMs)),
  acceptancesMs: Math.max(...gaps.map(({ acceptancesMs }) => acceptancesMs)),
})

/** Ends it all, tells what came of it, and checks what holds whatever happens. */
async function accountOf(what: string, traffic: Traffic, gaps: readonly Gap[]): Promise<Account> {
  const account = await traffic.end()
  process.stdout.write(summary(`${what}, ${gaps.length} times`, account, longest(gaps)) + course(gaps))
  expect(account).toMatchObject({ lostThoughReplicated: [], unexpected: [], mishaps: [] })
  expect(account.worst.excess).toBeLessThanOrEqual(0)
  return account
}

async function rounds(fault: () => Promise<Gap>): Promise<Gap[]> {
  const gaps: Gap[] = []
  for (let round = 0; round < ROUNDS; round++) gaps.push(await fault())
  return gaps
}

test(
  `a cluster with replicas, under 300/s: a master is killed ${ROUNDS} times`,
  async () => {
    const { cluster, traffic } = await openCluster()
    const gaps = await rounds(async () => {
      const master = await cluster.masterOf(PREFIX)
      const gap = await traffic.through(
        [master.admin, KEY],
        () => cluster.kill(master, PREFIX),
        () => cluster.named(master, PREFIX),
      )
      await cluster.restart(master)
      return gap
    })
    expect((await accountOf('a master of a cluster killed', traffic, gaps)).losses).toBe(ROUNDS)
  },
  TIMEOUT_MS,
)

test(
  `a cluster with replicas, under 300/s: a replica takes over by agreement ${ROUNDS} times`,
  async () => {
    const { cluster, traffic } = await openCluster()
    const gaps = await rounds(async () => {
      const master = await cluster.masterOf(PREFIX)
      return traffic.through(
        [master.admin, KEY],
        () => cluster.failOver(master),
        () => cluster.named(master, PREFIX),
      )
    })
    const account = await accountOf('failovers of a cluster by agreement', traffic, gaps)
    expect(account).toMatchObject({ lost: [], losses: ROUNDS })
  },
  TIMEOUT_MS,
)

test(
  `a cluster with replicas, under 300/s: the slot of the queue moves away and back ${ROUNDS} times`,
  async () => {
    const { cluster, traffic } = await openCluster()
    const [home, other] = [await cluster.masterOf(PREFIX), await cluster.anotherMaster(PREFIX)]
    const gaps = await rounds(async () => {
      const away = await traffic.through([home.admin, KEY], () => cluster.moveSlot(PREFIX, other))
      const back = await traffic.through([other.admin, KEY], () => cluster.moveSlot(PREFIX, home))
      return away.startsMs > back.startsMs ? away : back
    })
    const account = await accountOf('the slot moved away and back', traffic, gaps)
    expect(account).toMatchObject({ lost: [], duplicated: [], losses: 0 })
  },
  TIMEOUT_MS,
)

test(
  `a cluster with replicas, under 300/s: a master and the clients beside it are cut off from all others ${ROUNDS} times`,
  async () => {
    const { cluster, traffic } = await openCluster()
    const gaps = await rounds(async () => {
      const master = await cluster.masterOf(PREFIX)
      const gap = await traffic.through(
        [master.admin, KEY],
        () => cluster.part(master, PREFIX),
        () => cluster.named(master, PREFIX),
      )
      await cluster.join(master)
      await traffic.goOn()
      return gap
    })
    expect((await accountOf('a master of a cluster parted with its clients', traffic, gaps)).losses).toBe(ROUNDS)
  },
  TIMEOUT_MS,
)

test(
  `Sentinel with two replicas, under 300/s: the master is killed ${ROUNDS} times`,
  async () => {
    const { setup, traffic } = await openSentinel()
    const gaps = await rounds(async () => {
      const master = await setup.master()
      const gap = await traffic.through(
        [master.admin, KEY],
        () => setup.kill(),
        () => setup.named(master),
      )
      await setup.restart(master)
      return gap
    })
    expect((await accountOf('the master of a Sentinel killed', traffic, gaps)).losses).toBe(ROUNDS)
  },
  TIMEOUT_MS,
)

test(
  `Sentinel with two replicas, under 300/s: it is told to fail over ${ROUNDS} times`,
  async () => {
    const { setup, traffic } = await openSentinel()
    const gaps = await rounds(async () => {
      const master = await setup.master()
      return traffic.through(
        [master.admin, KEY],
        () => setup.failOver(),
        () => setup.named(master),
      )
    })
    const { losses, lost, duplicated } = await accountOf('SENTINEL FAILOVER', traffic, gaps)
    expect(losses).toBe(ROUNDS)
    // Clients that stayed with the old master until another one is named would lose or repeat some hundred each time.
    expect(lost.length + duplicated.length).toBeLessThan(100 * ROUNDS)
  },
  TIMEOUT_MS,
)

test(
  `Sentinel with two replicas, under 300/s: the master and the clients beside it are cut off from all others ${ROUNDS} times`,
  async () => {
    const { setup, traffic } = await openSentinel(DOWN_AFTER_PARTED_MS)
    const gaps = await rounds(async () => {
      const master = await setup.master()
      const gap = await traffic.through(
        [master.admin, KEY],
        () => setup.part(),
        () => setup.named(master),
      )
      await setup.join(master)
      await traffic.goOn()
      return gap
    })
    expect((await accountOf('the master of a Sentinel parted with its clients', traffic, gaps)).losses).toBe(ROUNDS)
  },
  TIMEOUT_MS,
)
