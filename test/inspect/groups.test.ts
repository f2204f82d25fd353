import type { Job } from 'bullmq'
import { expect, test } from 'vitest'
import { runHere } from '../../packages/cli/test/run-here.ts'
import type { ShapedJobsOptions, ShapedQueue } from '../../src/index.ts'
import type { QueueStatus } from '../../src/inspect/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, gate, Workshop } from '../worker/support.ts'
import { inspectorOf, statusOf } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const BY = { by: 'ann', reason: 'unpaid' }

const jobsOf = (group: string, count: number) =>
  Array.from({ length: count }, () => ({ name: 'job', data: {}, opts: { group: { id: group } } }))

/** Runs one of two jobs of the group `full`, which may run one, until the door opens. */
async function fill(queue: ShapedQueue) {
  const door = gate()
  const completed = eventsOf(
    'completed',
    shop.worker(queue, () => door.opened, { concurrency: 4 }),
  )
  await queue.addBulk(jobsOf('full', 2))
  await expect.poll(() => queue.getGroupStatus('full')).toBe('maxed')
  return { door, completed }
}

function explained(queue: ShapedQueue, id: string | undefined) {
  return inspectorOf(redis, shop).explain(queue.name, id as string)
}

test('a queue without groups has none to show', async () => {
  const queue = shop.queue({ rate: '1/h' })
  const inspector = inspectorOf(redis, shop)
  await queue.add('job', {})
  expect(await inspector.groups(queue.name)).toBeUndefined()
  expect((await inspector.status([queue.name]))[0]!.groups).toBeUndefined()
})

test('the oldest, the largest and the held groups are found among many', async () => {
  const queue = shop.queue({ rate: '1/h', groups: { rate: '1/h' } })
  const inspector = inspectorOf(redis, shop)
  await queue.addBulk(jobsOf('first', 1))
  await queue.addBulk(Array.from({ length: 150 }, (_, i) => jobsOf(`g${i}`, 1)).flat())
  await queue.addBulk(jobsOf('noisy', 150))
  await queue.add('job', {})
  await queue.pauseGroup('g7', BY)
  await queue.setGroup('g8', { weight: 5 }, BY)
  const completed = eventsOf(
    'completed',
    shop.worker(queue, async () => {}),
  )
  await completed.reach(1)
  const view = (await inspector.groups(queue.name, { count: 3 }))!
  const { counts, waiting, oldest, largest, held } = view
  expect(waiting).toBe(300)
  expect(Object.values(counts).reduce((sum, count) => sum + count, 0)).toBe(151)
  expect(counts).toMatchObject({ limited: 0, maxed: 0 })
  expect(oldest).toHaveLength(3)
  expect(oldest[0]!.headAgeMs).toBeGreaterThanOrEqual(oldest[2]!.headAgeMs!)
  expect(largest[0]).toMatchObject({ id: 'noisy', waiting: 150, share: 0.5, status: 'waiting' })
  expect(held.every(({ status }) => status === 'paused')).toBe(true)
  const [status, meter] = [await statusOf(inspector, queue.name), await queue.meter()]
  expect([status.groups, meter.groups, await queue.getGroupsCountByStatus()]).toEqual([counts, counts, counts])
  expect(largest[0]).toMatchObject(
    await queue.getGroup('noisy').then(({ inForce, overrides }) => ({ inForce, overrides })),
  )
})

test('what is set for groups, without pauses and what feedback holds', async () => {
  const queue = shop.queue({ rate: '1/h', groups: { rate: '1/h' } })
  const inspector = inspectorOf(redis, shop)
  await queue.waitUntilReady()
  expect(await inspector.groupOverrides(queue.name)).toEqual({})
  await queue.setGroup('a', { rate: '50/s', capacity: null }, BY)
  await queue.setGroup('b', { weight: 2 }, { ...BY, ttlMs: 60_000 })
  await queue.setGroup('over', { weight: 2 }, { ...BY, ttlMs: 1 })
  for (const id of ['b', 'c']) await queue.pauseGroup(id, BY)
  // Of Redis's clock: what was set for 1 ms is over.
  const over = async () => (await queue.getGroup('over')).overrides
  await expect.poll(over).toEqual({})
  expect(await inspector.groupOverrides(queue.name)).toEqual({ a: { rate: '50/s', capacity: null }, b: { weight: 2 } })
  const settings = await inspector.groupSettings(queue.name)
  expect(Object.keys(settings).toSorted()).toEqual(['a', 'b', 'c'])
  for (const id of ['a', 'b', 'c']) expect(settings[id]).toEqual((await queue.getGroup(id)).overrides)
  expect(settings.b).toMatchObject({ weight: { value: 2, ...BY, until: expect.any(Date) }, paused: { value: true } })
})

test('a job says which part of its group holds it', async () => {
  const queue = shop.queue({ rate: '1000/s', groups: { rate: '2/h', concurrency: 1 } })
  const [, rated] = await queue.addBulk([...jobsOf('rated', 2), ...jobsOf('rated', 1)])
  await queue.setGroup('full', { rate: null }, BY)
  await queue.setGroup('rated', { concurrency: null }, BY)
  const [, full] = await queue.addBulk(jobsOf('full', 2))
  await queue.pauseGroup('off', BY)
  const [, off] = await queue.addBulk(jobsOf('off', 2))
  const door = gate()
  const process = async ({ opts }: Job) => {
    if ((opts as ShapedJobsOptions).group?.id === 'full') await door.opened
  }
  const active = eventsOf('active', shop.worker(queue, process, { concurrency: 4 }))
  await active.reach(2)
  await expect.poll(() => queue.getGroupStatus('off')).toBe('paused')
  await expect.poll(() => queue.getGroupStatus('full')).toBe('maxed')
  const [byRate, byPlaces, byPause] = await Promise.all([rated, full, off].map((job) => explained(queue, job!.id)))
  expect(byRate!.hold).toMatchObject({ cause: 'rate', group: 'rated', until: expect.any(Date) })
  expect(byRate!.group).toMatchObject({ id: 'rated', status: 'limited', ahead: 0, waiting: 2 })
  const inMs = byRate!.startsAt!.getTime() - byRate!.at.getTime()
  expect(inMs).toBeGreaterThan(1_700_000)
  expect(inMs).toBeLessThanOrEqual(1_800_000)
  expect(byRate!.assumptions[0]).toBe('Group "rated" lets its jobs leave at 2/h.')
  const { parts, waitedMs, hold } = byRate!
  expect(parts.rate).toBeGreaterThanOrEqual(byRate!.at.getTime() - hold!.since.getTime())
  expect(Object.values(parts).reduce((sum, part) => sum + part, 0)).toBeCloseTo(waitedMs, 3)
  const until = hold!.until!.getTime()
  const [meter, status] = [await queue.meter(), await statusOf(inspectorOf(redis, shop), queue.name)]
  expect([meter, status].map(({ nextDepartureAt }) => nextDepartureAt!.getTime())).toEqual([until, until])
  expect(status.hold).toMatchObject({ cause: 'rate', group: 'rated', until: new Date(until) })
  expect(byPlaces!.hold).toMatchObject({ cause: 'concurrency', group: 'full' })
  expect(byPlaces!.startsAt).toBeUndefined()
  expect(byPlaces!.assumptions).toEqual(['Group "full" runs as many jobs as it may.'])
  expect(byPause!.hold).toMatchObject({ cause: 'pause', group: 'off' })
  expect(byPause!.group).toMatchObject({ ahead: 1, overrides: { paused: BY } })
  expect(byPause!.assumptions).toEqual(['Group "off" is paused without an end.'])
  door.open()
})

test('the queue names the group that holds its next job, and how, once all are held', async () => {
  const queue = shop.queue({ rate: '1000/s', groups: { concurrency: 1 } })
  const inspector = inspectorOf(redis, shop)
  const held = async () => (await statusOf(inspector, queue.name)).hold
  const { door, completed } = await fill(queue)
  await expect.poll(held).toMatchObject({ cause: 'concurrency', group: 'full' })
  expect((await runHere(redis, ['status', queue.name])).stdout).toMatch(/held by +the concurrency of group full for/)
  await queue.pauseGroup('full', BY)
  door.open()
  await completed.reach(1)
  await expect.poll(held).toMatchObject({ cause: 'pause', group: 'full' })
  await queue.resumeGroup('full', BY)
  await completed.reach(2)
  expect(await held()).toBeUndefined()
})

test('where jobs age, a group is held by the job that leaves next, and not by the most important', async () => {
  const limits = [{ name: 'tokens', by: 'group', unit: 'tokens', rate: '10/day', burst: 10 }] as const
  const queue = shop.queue({ groups: {}, limits, priorityAgeingMs: 1 })
  const inspector = inspectorOf(redis, shop)
  const add = (tokens: number, priority: number) =>
    queue.add('job', {}, { costs: { tokens }, group: { id: 'a', priority } })
  const worker = shop.worker(queue, async () => {})
  const completed = eventsOf('completed', worker)
  await add(10, 0)
  await completed.reach(1)
  const [dear, addedMs] = [await add(10, 1), Date.now()]
  await expect.poll(() => queue.getGroupStatus('a')).toBe('limited')
  await expect.poll(() => Date.now() - addedMs).toBeGreaterThan(20)
  const cheap = await add(0, 0)
  await expect.poll(() => queue.getGroup('a')).toMatchObject({ status: 'limited', waiting: 2, heldBy: 'tokens' })
  const [view, detail] = [(await inspector.groups(queue.name))!, (await inspector.group(queue.name, 'a'))!]
  for (const row of [view.held[0]!, view.largest[0]!, detail]) {
    expect(row).toMatchObject({ id: 'a', status: 'limited', heldBy: 'tokens' })
    expect(row.headAgeMs).toBeGreaterThan(20)
  }
  expect((await explained(queue, dear.id))?.hold).toMatchObject({ group: 'a', cause: 'limits', limit: 'tokens' })
  expect((await statusOf(inspector, queue.name)).hold).toMatchObject({ group: 'a', cause: 'limits' })
  expect(await explained(queue, cheap.id)).toMatchObject({ ahead: 1, hold: { cause: 'limits', limit: 'tokens' } })
})

test.each([
  ['with a priority', { priority: 3 }],
  ['of the wait list', {}],
])('a job without a group, %s, may leave while all groups are held', async (_, opts) => {
  const queue = shop.queue({ rate: '100/s', groups: { rate: '1/h' } })
  await queue.addBulk([1, 2].map(() => ({ name: 'a', data: {}, opts: { group: { id: 'a' } } })))
  const worker = shop.worker(queue, async () => {})
  await expect.poll(() => queue.getGroupStatus('a')).toBe('limited')
  await worker.close()
  const inspector = inspectorOf(redis, shop)
  const inMs = async () => {
    const [meter, status] = [await queue.meter(), await statusOf(inspector, queue.name)]
    return [meter, status].map(({ nextDepartureAt, at }) => nextDepartureAt!.getTime() - at.getTime())
  }
  for (const ms of await inMs()) expect(ms).toBeGreaterThan(3_000_000)
  await queue.add('plain', {}, opts)
  for (const ms of await inMs()) expect(ms).toBeLessThan(60_000)
})

test('who holds the only place of a group is named, and until when its lock lasts if it has died', async () => {
  const queue = shop.queue({ groups: { concurrency: 1 } })
  const { door, completed } = await fill(queue)
  const [first, second] = (await queue.getJobs(['active', 'prioritized'])) as Job[]
  const inspector = inspectorOf(redis, shop)
  const [live] = (await inspector.group(queue.name, 'full'))!.holders
  const { id } = live!.worker
  expect(live).toMatchObject({ jobId: first!.id, isSilent: false, worker: { id: expect.any(String) } })
  const at = () => live!.lockEndsAt!.getTime() - Date.now()
  expect(at()).toBeGreaterThan(0)
  expect(at()).toBeLessThanOrEqual(30_000)
  // As a worker leaves them that is killed.
  const seen = Date.now() - 25_000
  const row = { seen, since: 0, host: 'web-1', pid: 123, name: 'mails', state: 'running' }
  await redis.client().hset(queue.toKey('meta:workers'), id as string, JSON.stringify(row))
  const worker = { id, name: 'mails', host: 'web-1', pid: 123, seenAt: new Date(seen) }
  const holders = [{ jobId: first!.id, isSilent: true, worker }]
  expect(await inspector.group(queue.name, 'full')).toMatchObject({ holders })
  const told = await explained(queue, second!.id)
  expect(told).toMatchObject({ hold: { cause: 'concurrency', group: 'full' }, holders })
  const shown = await runHere(redis, ['group', 'show', queue.name, 'full'])
  const text = new RegExp(
    `job ${first!.id} of worker mails \\(web-1, process 123\\), silent for \\d+(\\.\\d+)?s; its lock ends at 20\\d\\d-`,
  )
  expect(shown.stdout).toMatch(text)
  expect((await runHere(redis, ['explain', queue.name, second!.id as string])).stdout).toMatch(text)
  const lock = queue.toKey(`${first!.id}:lock`)
  const token = (await redis.client().getdel(lock)) as string
  const [lost] = (await inspector.group(queue.name, 'full'))!.holders
  expect(lost).toMatchObject({ jobId: first!.id, lockEndsAt: undefined })
  await redis.client().set(lock, token, 'PX', 30_000)
  door.open()
  await completed.reach(2)
  expect((await inspector.group(queue.name, 'full'))!.holders).toEqual([])
})

test('a full queue names the group with most places, and stays full for a while after a refusal', async () => {
  const queue = shop.queue({ capacity: 40, groups: { capacity: 30 } })
  const inspector = inspectorOf(redis, shop)
  const read = async () => (await statusOf(inspector, queue.name)) as QueueStatus
  const fullText = ({ conditions }: QueueStatus) => conditions.find(({ name }) => name === 'Full')?.text
  for (let i = 0; i < 30; i++) await queue.add('job', {}, { group: { id: i < 10 ? `small-${i}` : 'acme' } })
  expect((await read()).largestGroup).toBeUndefined()
  for (let i = 0; i < 9; i++) await queue.add('job', {}, { group: { id: 'acme' } })
  const nearly = await read()
  expect(nearly.largestGroup).toEqual({ id: 'acme', waiting: 29 })
  expect([nearly.lastRefusedAt, fullText(nearly)]).toEqual([undefined, undefined])
  const { id = '' } = await queue.add('job', {}, { priority: 5 })
  expect(fullText(await read())).toBe('new jobs are refused; group acme holds 29 of 40 places')
  expect(await queue.offer('job', {}, { group: { id: 'tiny' } })).toMatchObject({ accepted: false })
  await queue.remove(id)
  const after = await read()
  expect([after.depth, fullText(after)]).toEqual([39, 'new jobs are refused; group acme holds 29 of 40 places'])
})
