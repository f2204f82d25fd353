import { setTimeout as sleep } from 'node:timers/promises'
import type { ShapedQueue } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { type Bench, connectionTo, type Figure, type Row } from '../figure.ts'
import { describeSlow, type SlowCommand, SlowCommands, slowRow } from '../measure/slow-commands.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'
import { DEPTHS, type DeepQueue, type Depth, deepQueue, jobsOf, memoryOf } from '../scale/deep-queue.ts'
import { describePace, type Paced, paced, type Work } from '../scale/pacing.ts'

const PER_SECOND = 500
const WORK: Work = { perSecond: PER_SECOND, processes: 2, workers: 1, concurrency: 20, jobMs: 5 }
/** How often the same is done, to tell what takes Redis long from what else the machine does. */
const ROUNDS = 5
const STOCK_JOBS = 50_000
const BY = { by: 'bench', reason: 'scale' }

/** What producers and people do while so many jobs wait. */
type Deeds = Readonly<Record<string, (round: number) => Promise<unknown>>>

interface Scene {
  readonly queue: ShapedQueue
  readonly inspector: Inspector
  readonly depth: Depth
  readonly jobs: number
  readonly middle: string
}

function deedsOf({ queue, inspector, depth, jobs, middle }: Scene): Deeds {
  const { name } = queue
  const state = depth.what === 'delays' ? 'delayed' : depth.what === 'the wait list' ? 'waiting' : 'prioritized'
  const after = async (round: number) =>
    (await inspector.jobs(name, state, { start: Math.floor(jobs / 3) + round, count: 1 }))[0]
  return {
    add: () => queue.add('job', {}),
    'addBulk of 1,000': () => addJobs(queue, 1000, depth.opts),
    offer: () => queue.offer('job', {}),
    'add with a deadline': () => queue.offer('job', {}, { mustStartBefore: Date.now() + 3_600_000 }),
    counts: () => queue.getJobCounts(),
    status: () => inspector.status([name]),
    'a page of jobs in the middle': () => inspector.jobs(name, state, { start: jobs / 2, count: 50 }),
    groups: () => inspector.groups(name),
    'explain a job in the middle': () => inspector.explain(name, middle),
    'remove a job in the middle': async (round) => (await queue.getJob((await after(round))?.id as string))?.remove(),
    setShape: (round) => queue.setShape({ rate: `${PER_SECOND + round}/s` }, BY).then(() => queue.clearShape()),
    pause: () => queue.pauseUntil(Date.now() + 1000, BY).then(() => queue.clearPause()),
  }
}

async function atTheStart(bench: Bench): Promise<Paced> {
  const queue = await makeQueue(bench, 'sluice', 'shallow', { rate: `${PER_SECOND}/s` })
  await addJobs(queue, 20 * PER_SECOND)
  const found = await paced(bench, queue, WORK)
  await removeQueue(queue)
  return found
}

async function stockBytesPerJob(bench: Bench, { opts }: Depth, jobs: number): Promise<number> {
  const queue = await makeQueue(bench, 'bullmq', 'stock')
  const before = await memoryOf(bench)
  await addJobs(queue, jobs, opts)
  const bytes = (await memoryOf(bench)) - before
  await removeQueue(queue)
  return bytes / jobs
}

/** The slowest command of each deed, the slowest deed first. */
async function deedsRow(label: string, slow: SlowCommands, deeds: Deeds): Promise<Row> {
  const found: { what: string; slowest: readonly SlowCommand[] }[] = []
  for (const [what, deed] of Object.entries(deeds)) found.push({ what, slowest: await slow.during(ROUNDS, deed) })
  found.sort((a, b) => (b.slowest[0]?.ms ?? 0) - (a.slowest[0]?.ms ?? 0))
  const worst = found.slice(0, 4).map(({ what, slowest }) => `${what}: ${describeSlow(slowest, 1)}`)
  return slowRow(
    `${label}: what is done meanwhile`,
    found.flatMap(({ slowest }) => slowest),
    worst.join('; '),
  )
}

async function measure(bench: Bench, slow: SlowCommands, depth: Depth, before: Paced): Promise<Row[]> {
  const jobs = jobsOf(bench)
  const label = `${jobs} in ${depth.what}`
  const beside = await stockBytesPerJob(bench, depth, Math.min(jobs, STOCK_JOBS))
  const deep = await deepQueue(bench, depth, jobs, slow)
  const { queue } = deep
  const inspector = new Inspector({ connection: connectionTo(bench.redis) })
  const rows = [memoryRow(label, deep, beside), slowRow(`${label}: filling`, deep.filling)]
  rows.push(
    await deedsRow(label, slow, deedsOf({ queue, inspector, depth, jobs, middle: await middleOf(queue, jobs) })),
  )
  if (depth.what !== 'delays') rows.push(...(await workedRows(bench, label, slow, queue, before)))
  await inspector.close()
  rows.push(slowRow(`${label}: drain`, await slow.during(1, () => queue.drain(true))))
  await removeQueue(queue)
  const left = await bench.client.dbsize()
  return [
    ...rows,
    { setup: `${label}: keys left`, asked: '0', reached: String(left), ok: left === 0, values: { left } },
  ]
}

async function workedRows(
  bench: Bench,
  label: string,
  slow: SlowCommands,
  queue: ShapedQueue,
  before: Paced,
): Promise<Row[]> {
  let slowest: readonly SlowCommand[] = []
  const held = await paced(bench, queue, WORK, async () => {
    slowest = await slow.during(ROUNDS, () => sleep(bench.quick ? 600 : 3000))
  })
  return [pacedRow(label, held, before), slowRow(`${label}: workers at ${PER_SECOND}/s`, slowest)]
}

function memoryRow(label: string, { bytesPerJob, keysPerJob }: DeepQueue, beside: number): Row {
  return {
    setup: `${label}: memory per job`,
    reached: `${bytesPerJob.toFixed(0)} bytes, ${keysPerJob.toFixed(2)} keys`,
    beside: `${beside.toFixed(0)} bytes`,
    values: { bytesPerJob, keysPerJob, beside },
  }
}

function pacedRow(label: string, held: Paced, before: Paced): Row {
  return {
    setup: `${label}: rate, lateness`,
    asked: 'as with few jobs',
    reached: `${describePace(held)}; with few ${describePace(before)}`,
    ok: Math.abs(held.rateKept - before.rateKept) <= 0.001,
    values: { held: { ...held, starts: held.starts.length } },
  }
}

/** A job that as many leave before as after. */
async function middleOf(queue: ShapedQueue, jobs: number): Promise<string> {
  const [found] = await queue.getJobs(['wait', 'prioritized', 'delayed'], jobs / 2, jobs / 2)
  return found?.id as string
}

/** One for each place where jobs can wait. */
export const scaleWaiting: readonly Figure[] = DEPTHS.map((depth) => ({
  name: depth.figure,
  title: `Very many jobs wait in ${depth.what}: memory, the slowest command of Redis (median of rounds), rate, lateness`,
  run: async (bench) => {
    await bench.client.flushall()
    const slow = await SlowCommands.start(bench.client)
    return measure(bench, slow, depth, await atTheStart(bench))
  },
}))
