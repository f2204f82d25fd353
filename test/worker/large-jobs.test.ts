import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, gate, Workshop, watchScripts } from './support.ts'

// Jobs with much data, or large results: no script copies more than about 256 KiB of them, and the worker asks for the rest.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const OPEN = { rate: '1000000/s', burst: 1_000_000 }
const limits = [{ name: 'open', ...OPEN }] as const
const SHAPES = [
  ['nothing that holds its jobs', {}],
  ['a rate', OPEN],
  ['a limit', { limits }],
  ['places', { limits: [{ name: 'places', algorithm: 'concurrency', concurrency: 1000 }] }],
  ['groups', { groups: {} }],
  ['all of them and ageing', { ...OPEN, limits, groups: {}, priorityAgeingMs: 1000 }],
] as const

const TEXT = 'x'.repeat(40 * 1024)
/** The first whole number of such texts that is 256 KiB or more. */
const MOST = 7
const PLACES = 50
const JOBS = 90

/** How often that text is in what each call that ends several jobs sends, and in its reply. */
function textsOf(worker: ReturnType<typeof shop.worker>): { readonly sent: number[]; readonly fetched: number[] } {
  const texts = { sent: [] as number[], fetched: [] as number[] }
  const count = (of: unknown) => JSON.stringify(of ?? '').split(TEXT).length - 1
  void watchScripts(worker, (name, args, reply) => {
    if (!name.endsWith(':exchange')) return
    texts.sent.push(count(args))
    texts.fetched.push(count(reply))
  })
  return texts
}

test.each(SHAPES)('jobs of 40 KiB in a queue with %s', async (_, shape) => {
  // One that were late on a busy machine would leave behind others.
  const queue = shop.queue({ ...(shape as object), maxLatenessMs: 60_000 })
  const opts = 'groups' in shape ? { group: { id: 'a' } } : {}
  const added = await queue.addBulk(Array.from({ length: JOBS }, () => ({ name: 'job', data: { TEXT }, opts })))
  const first = gate()
  let started = 0
  const worker = shop.worker(queue, async () => (++started <= PLACES ? first.opened : undefined), {
    concurrency: PLACES,
  })
  const calls = callsOf(worker)
  const texts = textsOf(worker)
  const departed = departuresOf(worker)
  const completed = eventsOf('completed', worker)
  await departed.reach(PLACES)
  first.open()
  await departed.reach(JOBS)
  await completed.reach(JOBS)
  const [ids, left] = [added, departed.all].map((all) => all.map(({ id }) => id as string)) as [string[], string[]]
  expect(left.toSorted()).toEqual(ids.toSorted())
  // All slots have come: jobs of an end and those asked for meanwhile start as their replies come, those of a reply in order.
  const moved = left.map((id, i) => Math.abs(ids.indexOf(id) - i))
  if (Object.keys(shape).length > 0) expect(Math.max(...moved)).toBeLessThanOrEqual(MOST)
  expect(Math.max(...calls.all.map(({ reply }) => reply.grants.length))).toBe(MOST)
  expect(Math.max(...texts.fetched)).toBe(MOST)
})

test('large results of jobs that end together are stored by several calls', async () => {
  const queue = shop.queue({})
  const added = await queue.addBulk(Array.from({ length: PLACES }, () => ({ name: 'job', data: {} })))
  const all = gate()
  const worker = shop.worker(queue, async () => all.opened.then(() => TEXT), { concurrency: PLACES })
  const [departed, completed] = [departuresOf(worker), eventsOf('completed', worker)]
  await departed.reach(PLACES)
  const texts = textsOf(worker)
  all.open()
  await completed.reach(PLACES)
  expect(Math.max(...texts.sent)).toBe(MOST)
  expect(
    (await Promise.all(added.map(({ id }) => queue.getJob(id as string)))).every((job) => job?.returnvalue === TEXT),
  ).toBe(true)
})

test('a worker that has got as much data as a call gives asks again at once, whoever else sleeps', async () => {
  const queue = shop.queue({ limits: [{ name: 'places', algorithm: 'concurrency', concurrency: 20 }] })
  await queue.addBulk(Array.from({ length: 60 }, () => ({ name: 'job', data: { text: TEXT.repeat(7) } })))
  const [first, second] = [gate(), gate()]
  shop.keep({ close: async () => second.open() })
  let started = 0
  const worker = shop.worker(queue, () => (++started <= 20 ? first : second).opened, { concurrency: 40 })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await departed.reach(20)
  await asksUntil(calls, 'closed')
  // A worker that has died in its sleep is handed what is left, and does not answer.
  const [seconds] = await client.time()
  await client.zadd(queue.toKey('meta:sleepers'), (Number(seconds) + 3600) * 1e6, randomUUID())
  first.open()
  await departed.reach(40)
})

test('a worker with free places is not said to have too few', async () => {
  const warnings: (Error & { readonly code?: string })[] = []
  const hear = (warning: Error) => warnings.push(warning)
  process.on('warning', hear)
  onTestFinished(() => void process.off('warning', hear))
  const queue = shop.queue({ rate: '1000/s', burst: 100, maxLatenessMs: 60_000 })
  const rest = gate()
  shop.keep({ close: async () => rest.open() })
  let started = 0
  const worker = shop.worker(queue, () => (++started <= 12 ? delay(100) : rest.opened), { concurrency: 50 })
  const [completed, departed] = [eventsOf('completed', worker), departuresOf(worker)]
  const addJobs = (count: number) =>
    queue.addBulk(Array.from({ length: count }, () => ({ name: 'job', data: { text: TEXT.repeat(7) } })))
  // How long jobs take is known then, and none of the others ends before all have come.
  await addJobs(12)
  await completed.reach(12)
  await addJobs(48)
  await departed.reach(60)
  expect(warnings.filter(({ code }) => code === 'SLUICE_CONCURRENCY')).toEqual([])
})
