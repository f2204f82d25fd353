import { expect, test } from 'vitest'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, jobs, Workshop } from '../worker/support.ts'
import { lettersOf } from './support.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const shop = new Workshop(redis)
const GOOD = 10
const DEATHS = 3

/** Lets one worker after another take the job that kills it. */
async function killWorkers(queueName: string, count: number): Promise<void> {
  const script = new URL('./programs/dying-worker.ts', import.meta.url)
  for (let i = 0; i < count; i++) {
    const worker = processes.fork(script, { args: [redis.url, redis.prefix, queueName] })
    expect(await worker.exited, worker.output).toMatchObject({ signal: 'SIGKILL' })
  }
}

// Fault table, row 2.
test('a job whose worker died three times fails with a reason that every tool shows; the others succeed', async () => {
  const queue = shop.queue({ rate: '100/s', burst: 5 })
  const letters = lettersOf(shop)
  const events = shop.queueEvents(queue)
  await events.waitUntilReady()
  const failed = eventsOf<{ jobId: string; failedReason: string }>('failed', events)
  const completed = eventsOf<{ jobId: string }>('completed', events)
  const good = await queue.addBulk(jobs(GOOD / 2))
  const { id } = await queue.add('poison', { why: 'it kills' }, { attempts: 10 })
  good.push(...(await queue.addBulk(jobs(GOOD / 2))))

  // Each of them dies of its first start of the poisonous job.
  await killWorkers(queue.name, DEATHS)
  const last = shop.worker(queue, async () => {}, {
    ...{ concurrency: 2, stalledInterval: 200, deadLetter: letters.name },
  })
  const started = departuresOf(last)

  await Promise.all([failed.reach(1), completed.reach(GOOD)])
  expect(started.all.filter(({ name }) => name === 'poison')).toEqual([])
  expect(completed.all.map(({ jobId }) => jobId).toSorted()).toEqual(good.map(({ id }) => id).toSorted())
  const reason = `poison: worker died ${DEATHS} times`
  expect(failed.all).toMatchObject([{ jobId: id, failedReason: reason }])
  expect(await queue.getJobCounts()).toMatchObject({ failed: 1, completed: GOOD, active: 0, waiting: 0 })
  expect(await queue.getJob(id!)).toMatchObject({ failedReason: reason, stalledCounter: DEATHS })
  expect(await letters.all()).toMatchObject([
    {
      queueName: queue.name,
      id,
      name: 'poison',
      data: { why: 'it kills' },
      failedReason: reason,
      stalledCounter: DEATHS,
    },
  ])
})

test('one death less, and the job is done', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const { id } = await queue.add('poison', {})
  await killWorkers(queue.name, DEATHS - 1)
  const done = eventsOf(
    'completed',
    shop.worker(queue, async () => {}, { stalledInterval: 200 }),
  )
  await done.reach(1)
  expect(done.all).toMatchObject([{ id, stalledCounter: DEATHS - 1 }])
})

test('the number of deaths is maxStalledCount and one', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const { id } = await queue.add('poison', {})
  await killWorkers(queue.name, 1)
  const worker = shop.worker(queue, async () => {}, { stalledInterval: 200, maxStalledCount: 0 })
  const failed = eventsOf('failed', worker)
  await failed.reach(1)
  expect(failed.all).toMatchObject([{ id, failedReason: 'poison: worker died 1 time' }])
})
