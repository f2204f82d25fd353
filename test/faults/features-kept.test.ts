import { type Shape, ShapedQueue, type ShapedQueueOptions, ShapedWorker } from '../../src/index.ts'
import { expect, onTestFinished, test, useConcurrentTests } from '../support/concurrent.ts'
import { quickConnection, startOwnRedis } from './support/own-redis.ts'
import { ReplicatedCluster } from './support/replicated-cluster.ts'

useConcurrentTests()

const PREFIX = '{b}'
const MANY = { timeout: 60_000, interval: 20 }

/** A Redis with a queue on it, and what happens to it halfway. */
interface Ground {
  connect(): ShapedQueueOptions['connection']
  disturb(): Promise<void>
}

const GROUNDS: readonly [what: string, start: () => Promise<Ground>][] = [
  [
    'a cluster whose replica takes over',
    async () => {
      const cluster = await ReplicatedCluster.start()
      return { connect: () => cluster.connect(), disturb: async () => cluster.failOver(await cluster.masterOf(PREFIX)) }
    },
  ],
  [
    'a cluster on which the slot of the queue moves',
    async () => {
      const cluster = await ReplicatedCluster.start()
      const disturb = async () => cluster.moveSlot(PREFIX, await cluster.anotherMaster(PREFIX))
      return { connect: () => cluster.connect(), disturb }
    },
  ],
  [
    'a Redis that is killed and restarted with its AOF',
    async () => {
      const service = await startOwnRedis({ persistence: 'aof' })
      const disturb = async () => {
        await service.kill()
        await service.restart()
      }
      return { connect: () => quickConnection(service.url), disturb }
    },
  ],
]

/** A queue, and a worker that runs its jobs one by one once it is told to. */
async function open(ground: Ground, name: string, shape: Shape) {
  const queue = new ShapedQueue(name, { connection: ground.connect(), prefix: PREFIX, shape })
  const ran: string[] = []
  const run = async (job: { name: string }) => {
    ran.push(job.name)
  }
  const worker = new ShapedWorker(name, run, { connection: ground.connect(), prefix: PREFIX, autorun: false })
  queue.on('error', () => {})
  worker.on('error', () => {})
  onTestFinished(async () => {
    await Promise.all([queue.close(), worker.close()])
  })
  await queue.waitUntilReady()
  return { queue, ran, start: () => void worker.run() }
}

const jobsOf = (group: string, count: number) =>
  Array.from({ length: count }, (_, i) => ({ name: `${group}${i}`, data: {}, opts: { group: { id: group } } }))

/** Adds jobs, however often that has to be tried. */
async function addTo(queue: ShapedQueue, jobs: Parameters<ShapedQueue['addBulk']>[0]): Promise<void> {
  const add = () =>
    queue.addBulk(jobs).then(
      () => true,
      () => false,
    )
  await expect.poll(add, MANY).toBe(true)
}

/** What a group has used of its limit stays used. */
async function limitPerGroup(ground: Ground): Promise<() => Promise<void>> {
  const { queue, ran, start } = await open(ground, 'limited', {
    // A late job that goes back has used a unit of its group.
    maxLatenessMs: 60_000,
    groups: {},
    limits: [{ name: 'tenant', by: 'group', algorithm: 'fixed-window', rate: '3/day' }],
  })
  const ranOf = (group: string) => ran.filter((name) => name.startsWith(group)).length
  await queue.addBulk([...jobsOf('a', 5), ...jobsOf('b', 2)])
  start()
  await expect.poll(() => ran.length, MANY).toBe(5)
  return async () => {
    await addTo(queue, [...jobsOf('b', 3), ...jobsOf('c', 2)])
    await expect.poll(() => [ranOf('b'), ranOf('c')], MANY).toEqual([3, 2])
    expect(ranOf('a')).toBe(3)
    expect(await queue.getGroup('a')).toMatchObject({ status: 'limited', waiting: 2 })
  }
}

/** Groups go on in turn, by the weights that were set; a late job that goes back would miss its turn. */
async function turns(ground: Ground): Promise<() => Promise<void>> {
  const { queue, ran, start } = await open(ground, 'turns', { maxLatenessMs: 60_000, groups: {} })
  await queue.addBulk([...jobsOf('a', 4), ...jobsOf('b', 2)])
  await queue.setGroup('a', { weight: 2 }, { by: 'test', reason: 'to see it kept' })
  return async () => {
    start()
    await expect.poll(() => ran.length, MANY).toBe(6)
    const first = ran.slice(0, 3).map(([group]) => group)
    expect(first.toSorted()).toEqual(['a', 'a', 'b'])
  }
}

/** Jobs have the age that they had. */
async function ageing(ground: Ground): Promise<() => Promise<void>> {
  const { queue, ran, start } = await open(ground, 'ageing', { priorityAgeingMs: 500 })
  const { timestamp } = await queue.add('old', {}, { priority: 2 })
  return async () => {
    // By now it counts as a job without a priority, and waits for longer than any of these.
    await expect.poll(() => Date.now() - timestamp, MANY).toBeGreaterThan(1100)
    await addTo(queue, [{ name: 'new', data: {} }])
    start()
    await expect.poll(() => ran, MANY).toEqual(['old', 'new'])
  }
}

test.each(GROUNDS)(
  'on %s, groups, limits of groups and the age of jobs are what they were',
  async (_what, startGround) => {
    const ground = await startGround()
    const checks = [await limitPerGroup(ground), await turns(ground), await ageing(ground)]
    await ground.disturb()
    for (const check of checks) await check()
  },
)
