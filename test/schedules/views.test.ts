import { expect, test } from 'vitest'
import { inspectorOf } from '../inspect/support.ts'
import { many } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { asksUntil, callsOf, departuresOf, Workshop } from '../worker/support.ts'
import { closedFor, zone } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

test('an audit knows the rate that was in force at each departure, and a sample the one at its time', async () => {
  const today = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'][new Date().getUTCDay()] as string
  const others = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'].filter((day) => day !== today).slice(0, 3)
  const rate = { schedule: [{ days: others.join(), rate: '400/s' }, { rate: '40/s' }] }
  const queue = shop.queue({
    rate,
    audit: 10,
    groups: { rate: { schedule: [{ days: others.join(), rate: '80/s' }, { rate: '20/s' }] } },
  })
  await queue.add('job', {}, { group: { id: 'a' } })
  await departuresOf(shop.worker(queue, async () => {})).reach(1)
  const [[, fields]] = (await redis.client().xrange(queue.toKey('meta:audit'), '-', '+')) as [[string, string[]]]
  const [[, , , intervalUs, , , [group, ofGroupUs]]] = JSON.parse(fields[1] as string)
  expect([intervalUs, group, ofGroupUs]).toEqual(['25000', 'a', '50000'])
  // So do the samples that charts are drawn from.
  const inspector = inspectorOf(redis, shop)
  await expect
    .poll(async () => (await inspector.series(queue.name)).at(-1)?.ratePerSecond, { timeout: 20_000 })
    .toBe(40)
})

test('while a schedule is closed nothing leaves, all views say until when, and jobs are told when they start', async () => {
  const { rate, opensAt } = closedFor(3)
  const queue = shop.queue({ rate, capacity: 3 })
  const worker = shop.worker(queue, async () => {}, { autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  const [first, second] = await queue.addBulk(many(2))
  void worker.run()
  await asksUntil(calls, 'closed')
  expect(calls.all.at(-1)?.reply.nextUs).toBe(opensAt.getTime() * 1000)
  const state = await queue.meter()
  expect(state).toMatchObject({ rate: '0/s', cause: 'closed', rateChangesAt: opensAt, nextDepartureAt: opensAt })
  expect(state.shape).toMatchObject({ rate: '50/s', schedule: { timeZone: zone } })
  const inspector = inspectorOf(redis, shop)
  const closed = { cause: 'rate', closed: { until: opensAt, timeZone: zone } }
  expect(await inspector.status([queue.name])).toMatchObject([{ hold: closed }])
  expect(await inspector.explain(queue.name, first?.id as string)).toMatchObject({ hold: closed, startsAt: opensAt })
  const { startsAt } = (await inspector.explain(queue.name, second?.id as string))!
  expect(startsAt?.getTime()).toBe(opensAt.getTime() + 20)
  // A full queue says when a place is free: when the first job leaves, less what it may be granted ahead.
  await queue.add('job', {})
  const refused = await queue.offer('job', {})
  expect(refused).toMatchObject({ accepted: false })
  const { retryAfterMs } = refused as { retryAfterMs: number }
  expect(Math.abs(retryAfterMs - (opensAt.getTime() - Date.now()))).toBeLessThan(1000)
  expect(departed.all).toHaveLength(0)
  // Open, it goes on at once: sleeping workers hear of it.
  await queue.setShape({ rate: '500/s' }, { by: 'test', reason: 'open' })
  await departed.reach(3)
  expect(await queue.meter()).toMatchObject({ rate: '500/s', cause: 'override', rateChangesAt: undefined })
})

test('a group waits until the first of its lanes may go; a value says whether it is closed, and when it opens', async () => {
  const { rate, opensAt } = closedFor(3)
  const queue = shop.queue({ groups: {}, limits: [{ name: 'host', by: 'host', rate: '1/h' }] })
  const who = { by: 'test', reason: 'test' }
  await queue.setLimit('host', { host: 'closed' }, { rate }, who)
  const add = (jobId: string, host: string) => queue.add('job', {}, { jobId, keys: { host }, group: { id: 'acme' } })
  await add('first', 'closed')
  for (const id of ['second', 'third']) await add(id, 'open')
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(1)
  await expect.poll(() => queue.getGroup('acme')).toMatchObject({ status: 'limited', heldKeys: { host: 'open' } })
  const { until } = await queue.getGroup('acme')
  const inspector = inspectorOf(redis, shop)
  const [first, third] = [await inspector.explain(queue.name, 'first'), await inspector.explain(queue.name, 'third')]
  expect(first).toMatchObject({ hold: { keys: { host: 'closed' }, closed: { until: opensAt } }, group: { until } })
  expect(Math.abs(until!.getTime() - third!.startsAt!.getTime())).toBeLessThan(1000)
  expect(until!.getTime()).toBeLessThan(opensAt.getTime() - 3_600_000)
  expect(await queue.getLimit('host', { host: 'closed' })).toMatchObject({ closed: true, opensAt, day: undefined })
  expect(await queue.getLimit('host', { host: 'open' })).toMatchObject({ closed: false, opensAt: undefined })
})
