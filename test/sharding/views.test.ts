import { fastify } from 'fastify'
import { expect, onTestFinished, test, vi } from 'vitest'
import { jsonHere, runHere } from '../../packages/cli/test/run-here.ts'
import { dashboard } from '../../packages/dashboard/src/index.ts'
import { createMetrics } from '../../packages/metrics/src/index.ts'
import { ShapedQueue } from '../../src/index.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { shardOf, shardPrefix } from '../../src/redis/shards.ts'
import { useRedis } from '../support/redis.ts'
import { endsOf, ShardShop } from './support/shop.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const ORIGIN = { host: 'localhost', origin: 'http://localhost' }
const SHAPE = { rate: '600/s', burst: 6, capacity: 90, groups: {}, audit: 20 } as const
const WHO = { by: 'test', reason: 'test' }

/** A queue of three shards, with jobs of two groups in different shards, and three that have none. */
async function filled(name: string) {
  const shop = new ShardShop({ connection, prefix })
  const queue = shop.queue(name, { shards: 3, shape: SHAPE })
  await queue.waitUntilReady()
  await queue.pause(WHO)
  const groups = [groupIn(0), groupIn(2)] as const
  const jobs = [groups[0], groups[0], groups[1]].map((id) => ({ name: 'job', data: {}, opts: { group: { id } } }))
  const grouped = await queue.addBulk(jobs)
  const others = [await queue.add('job', {}), await queue.add('job', {}), await queue.add('job', {}, { jobId: 'mine' })]
  return { shop, queue, groups, ids: [...grouped, ...others].map(({ id }) => id as string) }
}

function groupIn(shard: number): string {
  for (let i = 0; ; i++) if (shardOf(`group:g${i}`, 3) === shard) return `g${i}`
}

function inspect(): Inspector {
  const inspector = new Inspector({ connection, prefix })
  onTestFinished(() => inspector.close())
  return inspector
}

test('a sharded queue is one queue with the sums of its shards, and they are its detail', async () => {
  const { queue, shop, groups, ids } = await filled('one')
  const inspector = inspect()
  expect(await inspector.queues()).toEqual(['one'])
  const [status, missing] = await inspector.status(['one', 'none'])
  expect(missing).toBeUndefined()
  expect(status).toMatchObject({ name: 'one', rate: '600/s', capacity: 90, depth: 6, waiting: 6, grouped: 3 })
  expect(status).toMatchObject({ paused: true, cause: 'paused', acceptedTotal: 6, shape: { burst: 6, audit: 20 } })
  expect(status?.groups).toMatchObject({ waiting: 2 })
  expect(status?.hold).toMatchObject({ cause: 'pause' })
  const shards = status?.shards ?? []
  expect(shards.map(({ shard }) => shard)).toEqual([0, 1, 2])
  expect(shards.reduce((sum, { depth }) => sum + depth, 0)).toBe(6)
  expect(shards.reduce((sum, { capacity = 0 }) => sum + capacity, 0)).toBeLessThanOrEqual(90)
  expect(await inspector.fullest(['one', 'none'], 1)).toEqual(['one'])

  const rows = await inspector.jobs('one', 'waiting')
  const inGroups = await inspector.jobs('one', 'prioritized')
  expect([...rows, ...inGroups].map(({ id }) => id).toSorted()).toEqual(ids.toSorted())
  const page = await inspector.jobs('one', 'prioritized', { start: 1, count: 1 })
  expect(page).toEqual([inGroups[1]])
  expect(await inspector.job('one', 'mine')).toMatchObject({ id: 'mine', state: 'waiting' })
  expect(await inspector.explain('one', ids[0] as string)).toMatchObject({ shard: 0, state: 'prioritized' })
  expect(await inspector.explain('one', 'nothing')).toBeUndefined()
  const view = await inspector.groups('one')
  expect(view).toMatchObject({ waiting: 3, counts: { waiting: 2 } })
  expect(view?.largest.map(({ id, waiting }) => [id, waiting])).toEqual([
    [groups[0], 2],
    [groups[1], 1],
  ])
  expect(await inspector.group('one', groups[1])).toMatchObject({ id: groups[1], waiting: 1 })
  expect((await inspector.history('one')).map(({ kind }) => kind)).toEqual(['pause', 'declared'])
  await expect(inspector.audit('one')).rejects.toThrow('its 3 shards have an audit each; give the prefix of one')

  const ends = endsOf(shop.worker('one', async () => undefined, { shards: 3, concurrency: 6, shape: SHAPE }))
  await queue.resume(WHO)
  await ends.reach(6)
  await expect.poll(async () => (await inspector.status(['one']))[0]?.completedKept).toBe(6)
  await queue.obliterate({ force: true })
  expect(await inspector.queues()).toEqual([])
})

test('the command line shows and changes the whole, and names a shard where it cannot', async () => {
  const { queue, groups, ids } = await filled('lines')
  const run = (...args: string[]) => runHere(redis, args)
  const { queues } = await jsonHere(redis, ['status'])
  expect(queues).toMatchObject([{ name: 'lines', depth: 6, shards: [{ shard: 0 }, { shard: 1 }, { shard: 2 }] }])
  expect((await run('status', 'lines')).stdout).toMatch(/^shard +rate +cause +depth/m)
  expect((await jsonHere(redis, ['top', '--count', '1'])).queues).toMatchObject([{ name: 'lines', waiting: 6 }])
  expect(await jsonHere(redis, ['explain', 'lines', ids[2] as string])).toMatchObject({ shard: 2 })
  await jsonHere(redis, ['resume', 'lines', '--reason', 'test'])
  expect((await queue.meter()).each.map(({ paused }) => paused)).toEqual([false, false, false])
  const paused = await jsonHere(redis, ['pause', 'lines', '--for', '1h', '--reason', 'test'])
  const until = (await queue.meter()).each.map(({ pausedUntil }) => pausedUntil?.toISOString())
  expect(until).toEqual([paused.pausedUntil, paused.pausedUntil, paused.pausedUntil])
  await jsonHere(redis, ['shape', 'set', 'lines', '--rate', '60/s', '--reason', 'test'])
  expect(await jsonHere(redis, ['shape', 'show', 'lines'])).toMatchObject({ rate: '60/s', cause: 'meter paused' })
  const { each } = await queue.meter()
  expect(each.reduce((sum, { rate }) => sum + Number.parseFloat(rate ?? '0'), 0)).toBeLessThanOrEqual(60)
  await jsonHere(redis, ['shape', 'clear', 'lines', '--reason', 'test'])
  expect((await queue.getShape())?.rate).toBe('600/s')
  await jsonHere(redis, ['group', 'pause', 'lines', groups[1], '--reason', 'test'])
  expect(await jsonHere(redis, ['group', 'show', 'lines', groups[1]])).toMatchObject({ status: 'paused', waiting: 1 })
  expect(await (await queue.queueOfGroup(groups[1])).getGroup(groups[1])).toMatchObject({ status: 'paused' })
  const listed = await jsonHere(redis, ['group', 'list', 'lines'])
  expect(listed.counts).toMatchObject({ waiting: 1, paused: 1 })
  expect(listed.groups.map(({ id }: { id: string }) => id).toSorted()).toEqual(groups.toSorted())
  expect(await jsonHere(redis, ['jobs', 'show', 'lines', 'mine'])).toMatchObject({ id: 'mine', state: 'waiting' })
  const refused = await run('jobs', 'retry', 'lines', 'mine', '--reason', 'test')
  expect(refused.code).toBe(2)
  expect(refused.stderr).toContain('has 3 shards, and this command works on one of them: give its prefix')
  // Nothing would ever arrive at the keys that it reads.
  const recorded = await run('record', 'lines', '--for', '50ms')
  expect([recorded.code, recorded.stderr]).toEqual([2, expect.stringContaining('works on one of them')])
  const doctor = await runHere(redis, ['doctor', 'lines', '--json'])
  const { findings } = JSON.parse(doctor.stdout)
  expect(findings.find(({ check }: { check: string }) => check === 'foreign-workers')).toMatchObject({
    level: 'skipped',
    message: 'each shard has workers of its own',
  })
  const shard = { ...redis, prefix: shardPrefix(prefix, 'lines', 1) }
  expect((await jsonHere(shard, ['status', 'lines'])).queues).toMatchObject([{ name: 'lines' }])
  await queue.obliterate({ force: true })
})

type Call = (name: string, ...args: unknown[]) => unknown

/** An inspector of which each command is seen, and may be changed, before it is sent. */
function watched(see: (send: Call, name: string, ...args: unknown[]) => unknown): Inspector {
  const client = redis.client()
  const pipeline = client.pipeline.bind(client)
  client.pipeline = () => {
    const made = pipeline()
    const send = made.call.bind(made) as unknown as Call
    made.call = ((name: string, ...args: unknown[]) => see(send, name, ...args)) as never
    return made
  }
  return new Inspector({ connection: client, prefix })
}

test('a page of jobs reads the jobs of that page alone, though each shard may have all of them', async () => {
  const { queue } = await filled('paged')
  const asked: unknown[] = []
  const inspector = watched((send, name, ...args) => {
    const at = name === 'evalsha_ro' ? args.indexOf('rows') : -1
    if (at !== -1) asked.push(...JSON.parse(String(args[at + 1])).ids)
    return send(name, ...args)
  })
  expect(await inspector.jobs('paged', 'prioritized', { start: 2, count: 1 })).toHaveLength(1)
  expect(asked).toHaveLength(1)
  await queue.obliterate({ force: true })
})

test('a list of sharded queues that cannot be read is an error, not a queue without jobs', async () => {
  const { queue } = await filled('unread')
  const inspector = watched((send, name, ...args) =>
    args[0] === `${prefix}:sharded-queues` ? send('incr', 'too', 'many') : send(name, ...args),
  )
  await expect(inspector.jobs('unread', 'waiting')).rejects.toThrow('wrong number of arguments')
  await expect(inspector.status(['unread'])).rejects.toThrow('wrong number of arguments')
  await queue.obliterate({ force: true })
})

test.each(['queue', 'worker'] as const)('after Redis lost all, a %s lists the queue again', async (who) => {
  const shop = new ShardShop({ connection, prefix })
  const [name, options] = [`lost-${who}`, { shards: 2, shape: SHAPE }]
  const one =
    who === 'queue'
      ? shop.queue(name, options)
      : shop.worker(name, async () => undefined, { ...options, concurrency: 2 })
  await one.waitUntilReady()
  const inspector = inspect()
  expect(await inspector.queues()).toContain(name)
  const client = redis.client()
  const keys = await Promise.all([client.keys(`{${prefix}:${name}*`), client.keys(`${prefix}:*`)])
  await client.del(...keys.flat())
  await expect.poll(() => inspector.queues()).toContain(name)
  await one.close()
  await shop.queue(name, options).obliterate({ force: true })
})

test('a shard that does not answer keeps neither the others, nor BullMQ, from a resume', async () => {
  const { queue } = await filled('resumed')
  await queue.pauseUntil(Date.now() + 3_600_000, WHO)
  const clear = vi.spyOn(ShapedQueue.prototype, 'clearPause').mockRejectedValueOnce(new Error('Connection is closed'))
  const { code } = await runHere(redis, ['resume', 'resumed', '--reason', 'test'])
  clear.mockRestore()
  expect(code).toBe(3)
  const { each } = await queue.meter()
  expect(each.map(({ paused }) => paused)).toEqual([false, false, false])
  expect(each.filter(({ pausedUntil }) => pausedUntil !== undefined)).toHaveLength(1)
  await queue.obliterate({ force: true })
})

test('a job that all shards refuse is one refusal, and one that the next shard takes is none', async () => {
  const queue = new ShardShop({ connection, prefix }).queue('refusing', { shards: 3, shape: { capacity: 3 } })
  await queue.waitUntilReady()
  const refused = vi.fn()
  queue.on('refused', refused)
  const jobs = [await queue.add('job', {}), await queue.add('job', {}), await queue.add('job', {})]
  expect(jobs.flatMap(({ opts }) => Object.getOwnPropertySymbols(opts))).toEqual([])
  // The next one asks the shard of the first, which is full.
  await jobs[1]?.remove()
  await queue.add('job', {})
  const options = [{}, { lifo: true }, { priority: 3 }, { mustStartBefore: Date.now() + 60_000 }]
  for (const one of options) expect(await queue.offer('job', {}, one)).toMatchObject({ accepted: false })
  await expect(queue.addBulk([{ name: 'job', data: {} }])).rejects.toThrow('is full')
  await expect(queue.addOnce([{ name: 'job', data: {} }], { key: 'once', fingerprint: 'f' })).rejects.toThrow('is full')
  const [status] = await inspect().status(['refusing'])
  expect(status).toMatchObject({ depth: 3, refusedTotal: options.length + 2 })
  expect(refused).toHaveBeenCalledTimes(options.length + 2)
  await queue.obliterate({ force: true })
})

test('the metrics of a sharded queue have one label, and are sums', async () => {
  const { queue } = await filled('counted')
  const metrics = createMetrics({ connection, prefix, groups: 5 })
  onTestFinished(() => metrics.close())
  const text = await metrics.text()
  expect(text).toContain('sluice_backlog_jobs{queue="counted"} 6')
  expect(text).toContain('sluice_capacity_jobs{queue="counted"} 90')
  expect(text).toContain('sluice_rate_units_per_second{queue="counted"} 600')
  expect(text.match(/^sluice_backlog_jobs\{/gm)).toHaveLength(1)
  await queue.obliterate({ force: true })
})

test('the dashboard has one row and one page for it, and changes the whole', async () => {
  const { queue, groups, ids } = await filled('page')
  const app = fastify()
  onTestFinished(() => app.close())
  await app.register(dashboard({ connection, prefix, allowActions: true }))
  const get = async (url: string) => (await app.inject({ url, headers: { host: 'localhost' } })).json()
  const act = (payload: object) =>
    app.inject({ method: 'POST', url: '/api/queues/page/actions', headers: ORIGIN, payload })
  expect((await get('/api/fleet')).queues).toMatchObject([{ name: 'page', depth: 6, paused: true }])
  expect((await get('/api/queues/page')).status.shards).toHaveLength(3)
  expect(await get('/api/queues/page/jobs?state=prioritized')).toMatchObject({ total: 3 })
  expect(await get(`/api/queues/page/jobs/${ids[2]}/explain`)).toMatchObject({ shard: 2 })
  const changes = [
    { action: 'resume' },
    { action: 'pause', ttlMs: 3_600_000 },
    { action: 'setShape', shape: { rate: '60/s' } },
    { action: 'pauseGroup', group: groups[0] },
  ]
  for (const change of changes) expect((await act({ ...change, reason: 'test' })).statusCode).toBe(204)
  const state = await queue.meter()
  expect(state.each.map(({ pausedUntil }) => pausedUntil !== undefined)).toEqual([true, true, true])
  expect(state).toMatchObject({ depth: 6, shape: { rate: '60/s' } })
  expect(await (await queue.queueOfGroup(groups[0])).getGroup(groups[0])).toMatchObject({ status: 'paused' })
  const removal = await act({ action: 'removeJob', jobId: 'mine', reason: 'test' })
  expect(removal.json().detail).toContain('waiting')
  const refused = await act({ action: 'retryJobs', reason: 'test' })
  expect(refused.statusCode).toBe(422)
  expect(refused.json().detail).toContain('a queue with 3 shards')
  await queue.obliterate({ force: true })
})
