import { createLimiter } from '../../src/limits/index.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { Fleet } from './support/fleet.ts'
import { startOwnCluster } from './support/own-cluster.ts'

useConcurrentTests()

const PLAN = { name: 'plan', algorithm: 'token-bucket', rate: '10/day', burst: 10 } as const
const jobs = (count: number) =>
  Array.from({ length: count }, () => ({ name: 'job', data: {}, opts: { keys: { tenant: 'acme' } } }))

test('on a cluster two queues and a limiter of one hash tag share a value', async () => {
  const connection = await startOwnCluster()
  const fleet = new Fleet()
  const limits = [
    { ...PLAN, by: 'tenant', shared: true },
    { name: 'places', by: 'tenant', algorithm: 'concurrency' as const, concurrency: 2, shared: true },
  ]
  const queues = ['one', 'two'].map((name) => fleet.queue(name, { connection, prefix: '{b}', shape: { limits } }))
  for (const { name } of queues) fleet.worker(name, { connection, prefix: '{b}', concurrency: 5 })
  const limiter = createLimiter(connection, { ...PLAN, prefix: '{b}', timeoutMs: 10_000 })
  expect(await limiter.take('acme', { cost: 4 })).toMatchObject({ allowed: true })
  for (const queue of queues) await queue.addBulk(jobs(5))
  await fleet.until(() => fleet.completed.length === 6)
  expect(await limiter.peek('acme')).toMatchObject({ allowed: false })
  await limiter.reset('acme')
  await fleet.until(() => fleet.completed.length === 10)
  expect(fleet.errors).toEqual([])
})

test('on a cluster a shared limit of another hash tag is refused, declared or set', async () => {
  const connection = await startOwnCluster()
  const fleet = new Fleet()
  const limits = [{ ...PLAN, by: 'tenant', shared: true, prefix: '{c}' }]
  const wrong = { name: 'InvalidLimitError', message: expect.stringMatching(/limit "plan" .*'\{c\}'.*use '\{b\}'/) }
  const queue = fleet.queue('one', { connection, prefix: '{b}', shape: { limits } })
  await expect(queue.add('job', {}, { keys: { tenant: 'acme' } })).rejects.toMatchObject(wrong)
  const other = fleet.queue('two', { connection, prefix: '{b}', shape: { rate: '9/s' } })
  await expect(other.setShape({ limits }, { by: 'test', reason: 'test' })).rejects.toMatchObject(wrong)
  const right = limits.map((limit) => ({ ...limit, prefix: 'plans{b}' }))
  await other.setShape({ limits: right }, { by: 'test', reason: 'test' })
  await other.add('job', {}, { keys: { tenant: 'acme' } })
})
