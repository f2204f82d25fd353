import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { ShapedFlowProducer, ShapedQueue, ShapedQueueEvents, ShapedWorker } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { type Bench, connectionTo, type Figure, type Row } from '../figure.ts'
import { SlowCommands, slowRow } from '../measure/slow-commands.ts'
import { connectionsTo } from '../scale/connections.ts'
import { memoryOf } from '../scale/deep-queue.ts'

const OBJECTS = 10
const AT_ONCE = 50
const SETTLE_MS = 500

interface Closable {
  waitUntilReady?(): Promise<unknown>
  close(): Promise<unknown>
}

type Connection = Redis | ReturnType<typeof connectionTo>
const KINDS: Readonly<Record<string, (connection: Connection, n: number) => Closable>> = {
  ShapedQueue: (connection, n) => new ShapedQueue(`objects-${n}`, { connection }),
  ShapedWorker: (connection, n) =>
    new ShapedWorker(`objects-${n}`, async () => {}, { connection }).on('error', () => {}),
  ShapedFlowProducer: (connection) => new ShapedFlowProducer({ connection }),
  ShapedQueueEvents: (connection, n) => new ShapedQueueEvents(`objects-${n}`, { connection }),
  Inspector: (connection) => new Inspector({ connection }),
}

/** How many connections each object of a kind opens, beside those of the client that they were given. */
async function connectionsPer(bench: Bench, make: (n: number) => Closable): Promise<number> {
  // What was closed before is gone by then.
  await sleep(SETTLE_MS)
  const before = await connectionsTo(bench.client)
  const objects = Array.from({ length: OBJECTS }, (_, n) => make(n))
  await Promise.all(objects.map((object) => object.waitUntilReady?.() ?? (object as Inspector).queues()))
  const opened = (await connectionsTo(bench.client)) - before
  await Promise.all(objects.map((object) => object.close()))
  return opened / OBJECTS
}

async function connectionRows(bench: Bench): Promise<Row[]> {
  const rows: Row[] = []
  for (const [kind, make] of Object.entries(KINDS)) {
    const shared = new Redis(connectionTo(bench.redis))
    await shared.ping()
    const own = await connectionsPer(bench, (n) => make(connectionTo(bench.redis), n))
    const beside = await connectionsPer(bench, (n) => make(shared, n))
    await shared.quit()
    rows.push({
      setup: `connections per ${kind}`,
      reached: `${own.toFixed(1)} with options, ${beside.toFixed(1)} with a client of the program`,
      values: { own, beside },
    })
  }
  return rows
}

async function inSlices<T>(all: readonly T[], deed: (one: T) => Promise<unknown>): Promise<void> {
  for (let from = 0; from < all.length; from += AT_ONCE) await Promise.all(all.slice(from, from + AT_ONCE).map(deed))
}

async function queueRows(bench: Bench): Promise<Row[]> {
  const count = bench.quick ? 1000 : 10_000
  const connection = new Redis(connectionTo(bench.redis))
  const slow = await SlowCommands.start(bench.client)
  await connection.ping()
  const [connections, memory, heap] = [
    await connectionsTo(bench.client),
    await memoryOf(bench),
    process.memoryUsage().heapUsed,
  ]
  const shape = { rate: '100/s', capacity: 1000 }
  const queues = Array.from(
    { length: count },
    (_, i) => new ShapedQueue(`many-${i}`, { connection, shape, admitTimeoutMs: 60_000 }),
  )
  const startedMs = performance.now()
  await inSlices(queues, (queue) => queue.add('job', {}))
  const ms = performance.now() - startedMs
  const [opened, bytes] = [(await connectionsTo(bench.client)) - connections, (await memoryOf(bench)) - memory]
  const grown = process.memoryUsage().heapUsed - heap
  const slowest = await slow.slowest()
  await inSlices(queues, (queue) => queue.obliterate({ force: true }))
  await inSlices(queues, (queue) => queue.close())
  connection.disconnect()
  const left = await bench.client.dbsize()
  const per = `${(bytes / count).toFixed(0)} bytes of Redis with one job, ${(grown / count / 1024).toFixed(1)} KB of heap`
  return [
    { setup: `${count} queues: each`, reached: per, values: { bytes, grown, count } },
    {
      setup: `${count} queues: connections`,
      asked: '<= 1',
      reached: String(opened),
      ok: opened <= 1,
      values: { opened },
    },
    { setup: `${count} queues: first add`, reached: `${((ms * 1000) / count).toFixed(0)} µs each`, values: { ms } },
    slowRow(`${count} queues: the slowest script`, slowest),
    { setup: `${count} queues: keys left`, asked: '0', reached: String(left), ok: left === 0, values: { left } },
  ]
}

export const scaleQueues: Figure = {
  name: 'scale-queues',
  title: 'Very many queues on the connections of one client, and the connections that each object opens',
  run: async (bench) => {
    await bench.client.flushall()
    const connections = await connectionRows(bench)
    await bench.client.flushall()
    return [...connections, ...(await queueRows(bench))]
  },
}
