import { expect, onTestFinished, test } from 'vitest'
import { type NotReplicatedError, ShapedQueue } from '../../src/index.ts'
import { ReplicatedCluster } from './support/replicated-cluster.ts'

const PREFIX = '{b}'
const TERMS = { replicas: 1, timeoutMs: 500 }
const JOBS = [1, 2, 3].map(() => ({ name: 'job', data: {} }))

test('on a cluster replicas are asked of the node that has the queue: one that stands still confirms nothing, one that is back does', async () => {
  const cluster = await ReplicatedCluster.start({ nodeTimeoutMs: 5000 })
  const queue = new ShapedQueue('mail', { connection: cluster.connect(), prefix: PREFIX, shape: { durability: TERMS } })
  queue.on('error', () => {})
  onTestFinished(() => queue.close())
  const master = await cluster.masterOf(PREFIX)
  const replica = await cluster.replicaOf(master)
  const pid = replica.service.pid as number
  onTestFinished(() => void process.kill(pid, 'SIGCONT'))
  // Only a connection on which nothing is new tells whether it is the same as before.
  await expect
    .poll(
      () =>
        queue.add('job', {}).then(
          () => true,
          () => false,
        ),
      { timeout: 60_000 },
    )
    .toBe(true)

  process.kill(pid, 'SIGSTOP')
  const single = (await queue.add('job', {}, { jobId: 'mine' }).catch((error: unknown) => error)) as NotReplicatedError
  expect(single).toMatchObject({ name: 'NotReplicatedError', acknowledged: 0, ...TERMS, jobIds: ['mine'] })
  const bulk = (await queue.addBulk(JOBS).catch((error: unknown) => error)) as NotReplicatedError
  expect(bulk).toMatchObject({ name: 'NotReplicatedError', acknowledged: 0, ...TERMS })
  expect(bulk.jobIds).toHaveLength(3)
  // They are accepted all the same, by the node that has the queue.
  for (const id of ['mine', ...bulk.jobIds]) expect(await master.admin.exists(`${PREFIX}:mail:${id}`)).toBe(1)

  process.kill(pid, 'SIGCONT')
  await master.admin.set(`${PREFIX}:caught-up`, 1)
  await expect.poll(() => master.admin.wait(1, 1000)).toBe(1)
  const again = () =>
    queue.add('job', {}, { jobId: 'mine' }).then(
      ({ id }) => id,
      () => undefined,
    )
  await expect.poll(again).toBe('mine')
  await replica.admin.call('READONLY')
  for (const id of ['mine', ...bulk.jobIds]) expect(await replica.admin.exists(`${PREFIX}:mail:${id}`)).toBe(1)
})
