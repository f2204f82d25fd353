import type { Cluster, Redis } from 'ioredis'
import { vi } from 'vitest'
import { ClusterPrefixError, QueueUnavailableError, ShapedFlowProducer, ShapedQueue } from '../../src/index.ts'
import { expect, onTestFinished, test, useConcurrentTests } from '../support/concurrent.ts'
import { eventsOf } from '../worker/support.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { OwnCluster, startOwnCluster } from './support/own-cluster.ts'

useConcurrentTests()

// Fault table, row 23.
test('on a cluster queue, worker and flow work under a tagged prefix and are paced; an untagged one is refused', async () => {
  const connection = await startOwnCluster()
  expect(() => new ShapedQueue('mail', { connection })).toThrow(ClusterPrefixError)
  expect(() => new ShapedQueue('mail', { connection })).toThrow(/'\{bull\}'/)

  const fleet = new Fleet()
  const prefix = '{b}'
  const queue = fleet.queue('mail', { connection, prefix, shape: { rate: '100/s', burst: 3, capacity: 60 } })
  const flows = new ShapedFlowProducer({ connection, prefix })
  onTestFinished(() => flows.close())
  const bulk = await queue.addBulk(Array.from({ length: 30 }, () => ({ name: 'job', data: {} })))
  const flow = await flows.add({
    name: 'parent',
    queueName: 'mail',
    children: [1, 2].map(() => ({ name: 'child', queueName: 'mail' })),
  })
  const ids = idsOf([...bulk, flow.job, ...(flow.children ?? []).map(({ job }) => job)])
  fleet.worker('mail', { connection, prefix, concurrency: 10 })
  await fleet.until(() => fleet.completed.length === ids.length)
  expect([...fleet.completed].sort()).toEqual([...ids].sort())
  expect(worstExcess(fleet.slotsUs, { intervalUs: 10_000, burst: 3 })).toBeLessThanOrEqual(0)
  expect({ errors: fleet.errors, failed: fleet.failed }).toEqual({ errors: [], failed: [] })

  await queue.addBulk(Array.from({ length: 60 }, () => ({ name: 'job', data: {}, opts: { delay: 60_000 } })))
  await expect(queue.add('job', {})).rejects.toThrow('is full (60 of 60)')
})

test('on a cluster adds whose reply is lost are there once: a job, a bulk and a flow', async () => {
  const cluster = await OwnCluster.start()
  const prefix = '{b}'
  const { from } = await cluster.placeOf(prefix)
  const { connection, proxies } = await cluster.connectThroughProxies()
  const queue = new Fleet().queue('mail', { connection, prefix, shape: { capacity: 60 } })
  const flows = new ShapedFlowProducer({ connection, prefix })
  onTestFinished(() => flows.close())
  await Promise.all([queue.waitUntilReady(), flows.waitUntilReady()])
  const lost = async (add: () => Promise<unknown>) => {
    // Redis knows the script then.
    await add()
    const dropped = proxies[from]?.dropReplyOf(([command]) => /^(eval|fcall)/i.test(command ?? ''))
    await Promise.all([dropped, add()])
  }
  await lost(() => queue.add('job', {}))
  await lost(() => queue.addBulk(manyJobs(3)))
  await lost(() => flows.add({ name: 'a', queueName: 'mail', children: [{ name: 'b', queueName: 'mail' }] }))
  expect(await queue.getJobCountByTypes('wait', 'waiting-children')).toBe(12)
})

/** Little patience, so that a test sees the end of it. */
const IMPATIENT = { maxRedirections: 2, retryDelayOnTryAgain: 1, retryDelayOnMoved: 1, retryDelayOnClusterDown: 1 }
const manyJobs = (count: number) => Array.from({ length: count }, () => ({ name: 'job', data: {} }))

test('a cluster that is down: adds fail with QueueUnavailableError, ends are stored later, and no job runs twice', async () => {
  const cluster = await OwnCluster.start()
  const prefix = '{b}'
  const { from, to } = await cluster.placeOf(prefix)
  const connection = cluster.connect(IMPATIENT)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, prefix, shape: { rate: '1000/s', burst: 10 } })
  const ids = idsOf(await queue.addBulk(manyJobs(10)))
  const runs: string[] = []
  let end = () => {}
  const ends = new Promise<void>((resolve) => {
    end = resolve
  })
  const options = { connection, prefix, concurrency: 10, stalledInterval: 200 }
  const worker = fleet.worker('mail', options, async ({ id }) => {
    runs.push(id as string)
    await ends
  })
  await fleet.until(() => fleet.departures.length === 10)
  await cluster.goDown(to, from)
  const refusals = eventsOf<Error>('error', worker)
  end()
  // Each end that is refused is reported once.
  await refusals.reach(10)
  const ways = [
    () => queue.add('job', {}),
    () => queue.addBulk(manyJobs(3)),
    () => queue.addOnce(manyJobs(1), { key: 'k', fingerprint: 'f' }),
    () => queue.offer('job', {}),
  ]
  // The client may have asked the node that is gone last.
  const reason = /CLUSTERDOWN|Connection is closed/
  for (const way of ways) await expect(way()).rejects.toMatchObject({ name: 'QueueUnavailableError', message: reason })
  await cluster.comeUp(to, from)
  await fleet.until(() => ids.every((id) => fleet.completed.includes(id)))
  expect(runs.filter((id) => ids.includes(id)).toSorted()).toEqual(ids.toSorted())
  const later = (await vi.waitFor(() => queue.add('job', {}), 60_000)).id as string
  await fleet.until(() => fleet.completed.includes(later))
  expect({ losses: fleet.losses, failed: fleet.failed }).toEqual({ losses: [], failed: [] })
})

/** What happens to the blocking command in flight while its client disconnects: in one failover of nine, if all is slow. */
const interferences: Readonly<Record<string, (client: Cluster) => void>> = {
  'is redirected': (client) => {
    const [{ options }] = client.nodes() as [Redis]
    const { connectionPool } = client as unknown as { connectionPool: { findOrCreate(node: object): Redis } }
    client.once('disconnecting', () => connectionPool.findOrCreate({ host: options.host, port: options.port }))
  },
  'finds no node': (client) => {
    client.once('disconnecting', () => client.bzpopmin('{b}:none', 1).catch(() => {}))
  },
}

test.each(Object.entries(interferences))(
  'a worker pauses, resumes and closes although a command in flight %s',
  async (_what, interfere) => {
    const connection = await startOwnCluster()
    const fleet = new Fleet()
    const worker = fleet.worker('mail', { connection, prefix: '{b}' })
    const queue = fleet.queue('mail', { connection, prefix: '{b}', shape: { rate: '100/s' } })
    const runs = async (count: number) => {
      await queue.add('job', {})
      await fleet.until(() => fleet.completed.length === count)
    }
    await runs(1)
    const { blockingConnection } = worker.backend as unknown as { blockingConnection: { client: Promise<Cluster> } }
    const client = await blockingConnection.client
    const connecting = vi.fn()
    client.on('connecting', connecting)
    interfere(client)
    await worker.pause()
    // Once, for the resume: BullMQ connects again at the end of a pause.
    expect(connecting).toHaveBeenCalledTimes(1)
    worker.resume()
    await runs(2)
    interfere(client)
    await worker.close()
    expect(client.status).toBe('end')
    expect(connecting).toHaveBeenCalledTimes(1)
  },
)

test('a slot that moves is no loss: adds fail with QueueUnavailableError meanwhile, ends are stored later; a failover is one', async () => {
  const cluster = await OwnCluster.start()
  const connection = cluster.connect()
  const prefix = '{b}'
  const place = await cluster.placeOf(prefix)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, prefix, shape: { rate: '200/s', burst: 3, capacity: 1000 } })
  const producer = fleet.queue('mail', { connection: cluster.connect(IMPATIENT), prefix })
  const added = idsOf(await queue.addBulk(manyJobs(100)))
  const runs: string[] = []
  let ends: Promise<void> | undefined
  let end = () => {}
  fleet.worker('mail', { connection: cluster.connect(IMPATIENT), prefix, concurrency: 10 }, async ({ id }) => {
    runs.push(id as string)
    await ends
  })
  await fleet.until(() => fleet.completed.length > 20)
  ends = new Promise((resolve) => {
    end = resolve
  })
  await fleet.until(() => fleet.departures.length - fleet.completed.length === 10)

  await producer.getShape()
  await cluster.beginMove(place)
  await cluster.moveKeys(place, ['{b}:mail:meta:shape'])
  end()
  // ioredis repeats it at any node, and its error names the last answer only: of one call in five that is MOVED.
  const refusal = /^Too many Cluster redirections\. Last error: (?:\w+: )?(TRYAGAIN|MOVED|ASK) /
  await fleet.until(() => fleet.errors.some(({ error }) => refusal.test(error.message)))
  const ways = [
    () => producer.add('job', {}),
    () => producer.addBulk(manyJobs(3)),
    () => producer.addOnce(manyJobs(1), { key: 'k', fingerprint: 'f' }),
    () => producer.offer('job', {}),
  ]
  for (const way of ways) {
    const error = await way().catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(QueueUnavailableError)
    expect(error).toMatchObject({ mayBeStored: false, cause: { message: expect.stringMatching(refusal) } })
  }
  await cluster.moveKeys(place)
  await cluster.endMove(place)
  added.push(...idsOf(await queue.addBulk(manyJobs(50))))
  await fleet.until(() => fleet.completed.length === added.length)
  expect(fleet.completed.toSorted()).toEqual(added.toSorted())
  expect(runs.toSorted()).toEqual(added.toSorted())
  expect({ losses: fleet.losses, failed: fleet.failed }).toEqual({ losses: [], failed: [] })
  expect(worstExcess(fleet.slotsUs, { intervalUs: 5000, burst: 3 })).toBeLessThanOrEqual(0)

  await cluster.failOver(place.to)
  await queue.addBulk(manyJobs(20))
  await fleet.until(() => fleet.completed.length === added.length + 20)
  expect(fleet.losses).toMatchObject([{ policy: 'hold' }])
  // While the node that took over is there: it is the first that goes.
  await Promise.all(fleet.workers.map((worker) => worker.close()))
})
