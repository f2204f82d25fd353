import { once } from 'node:events'
import { createBullBoard } from '@bull-board/api'
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter'
import { FastifyAdapter } from '@bull-board/fastify'
import { fastify } from 'fastify'
import { expect, onTestFinished, test } from 'vitest'
import { type ShapedQueue, ShapedWorker } from '../../../../src/index.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { dashboard } from '../../src/index.ts'
import { listen, type Served, shapedQueue } from './support.ts'

const redis = useRedis(import.meta.url)

/** bull-board's own words for one queue. */
interface Board {
  readonly name: string
  readonly counts: Readonly<Record<string, number>>
  readonly jobs: readonly { readonly id: string; readonly name: string }[]
  readonly isPaused: boolean
}

/** One app with both: the dashboard at /sluice, bull-board at /board. */
async function serveBoth(queue: ShapedQueue): Promise<Served & { board(status?: string): Promise<Board> }> {
  const app = fastify()
  onTestFinished(async () => {
    const closed = app.close()
    app.server.closeAllConnections()
    await closed
  })
  // The two packages may bring different versions of one type.
  const adapter = new FastifyAdapter()
  createBullBoard({ queues: [new BullMQAdapter(queue)], serverAdapter: adapter })
  adapter.setBasePath('/board')
  await app.register(dashboard({ connection: redis.connection, prefix: redis.prefix, allowActions: true }), {
    prefix: '/sluice',
  })
  await app.register(adapter.registerPlugin(), { prefix: '/board' })
  const served = await listen(app, '/sluice')
  const board = async (status = 'latest') => {
    const answer = await fetch(
      `http://127.0.0.1:${served.port}/board/api/queues?activeQueue=${queue.name}&status=${status}`,
    )
    const { queues } = (await answer.json()) as { queues: Board[] }
    return queues.find(({ name }) => name === queue.name) as Board
  }
  return { ...served, board }
}

const onBoard = ({ port }: Served, path: string) =>
  fetch(`http://127.0.0.1:${port}/board/api/queues/${path}`, { method: 'PUT' })

async function statusOf({ get }: Served, name: string) {
  const { status } = (await (await get(`api/queues/${name}`)).json()) as { status: Record<string, unknown> }
  return status
}

test('both stand in one app, each with its own fields', async () => {
  const queue = await shapedQueue(redis, 'beside')
  const served = await serveBoth(queue)
  const ours = await served.get('')
  const theirs = await fetch(`http://127.0.0.1:${served.port}/board`)
  expect([ours.status, theirs.status]).toEqual([200, 200])
  expect(ours.headers.get('content-security-policy')).toContain("default-src 'self'")
  expect(theirs.headers.get('content-security-policy')).toBeNull()
  expect(await theirs.text()).toContain('/board/')
})

test('bull-board counts and lists the jobs of a shaped queue as the dashboard does', async () => {
  const queue = await shapedQueue(redis, 'counted', { rate: '1/min', capacity: 100 })
  const worker = new ShapedWorker(
    'counted',
    async ({ name }) => (name === 'bad' ? Promise.reject(new Error('no')) : 'done'),
    {
      ...{ connection: redis.connection, prefix: redis.prefix },
    },
  )
  onTestFinished(() => worker.close())
  const failed = once(worker, 'failed')
  await queue.add('bad', {}, { jobId: 'j1' })
  await failed
  await worker.close()
  await queue.addBulk([2, 3, 4].map((i) => ({ name: `job ${i}`, data: {}, opts: { jobId: `j${i}` } })))
  await queue.add('later', {}, { jobId: 'j5', delay: 3_600_000, timestamp: Date.now() - 60_000 })
  await queue.add('first', {}, { jobId: 'j6', priority: 1 })
  const served = await serveBoth(queue)
  const { counts } = await served.board()
  expect(counts).toMatchObject({ waiting: 3, delayed: 1, prioritized: 1, failed: 1, active: 0, completed: 0 })
  expect(await statusOf(served, 'counted')).toMatchObject({
    waiting: 4,
    delayed: 1,
    failedKept: 1,
    active: 0,
    completedKept: 0,
  })
  expect((await served.board('waiting')).jobs.map(({ id }) => id).toSorted()).toEqual(['j2', 'j3', 'j4'])
  const { jobs } = (await (await served.get('api/queues/counted/jobs?state=waiting')).json()) as Board
  expect(jobs.map(({ id }) => id)).toEqual(['j2', 'j3', 'j4'])

  expect((await onBoard(served, 'counted/j1/retry')).ok).toBe(true)
  expect((await served.board()).counts).toMatchObject({ waiting: 4, failed: 0 })
  // It leaves alone what came within the last five seconds.
  expect((await onBoard(served, 'counted/clean/delayed')).ok).toBe(true)
  expect((await served.board()).counts.delayed).toBe(0)
  await expect
    .poll(async () => statusOf(served, 'counted'))
    .toMatchObject({ waiting: 5, delayed: 0, failedKept: 0, depth: 5 })
})

test('a pause of bull-board is seen by the dashboard, and the other way round', async () => {
  const queue = await shapedQueue(redis, 'paused')
  const served = await serveBoth(queue)
  expect((await onBoard(served, 'paused/pause')).ok).toBe(true)
  await expect.poll(() => statusOf(served, 'paused')).toMatchObject({ paused: true, cause: 'paused' })
  const resumed = await served.post('api/queues/paused/actions', { action: 'resume', reason: 'over' })
  expect([resumed.status, (await served.board()).isPaused]).toEqual([204, false])
  await served.post('api/queues/paused/actions', { action: 'pause', reason: 'again' })
  expect((await served.board()).isPaused).toBe(true)
  expect((await onBoard(served, 'paused/resume')).ok).toBe(true)
  await expect.poll(() => statusOf(served, 'paused')).toMatchObject({ paused: false })
})
