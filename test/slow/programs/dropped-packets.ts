import { execFileSync } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { QueueEvents } from 'bullmq'
import { Redis } from 'ioredis'
import { ShapedQueue, ShapedWorker } from '../../../src/index.ts'
import { startRedis } from '../../../workers/services/redis.ts'

/**
 * Runs in a network of its own, whose packets it drops: those of the connections that there are, in both directions.
 * Prints, as a line of JSON for each round, how long each user of a connection stood still, ms.
 */
const rounds = Number(process.argv[2])
const GIVE_UP_MS = 60_000
const HOUR_MS = 3_600_000

execFileSync('ip', ['link', 'set', 'lo', 'up'])
const service = await startRedis({ ignoreGiven: true })
const { host, port } = service
/** Nothing but where Redis is: what the library sees is by itself. */
const connection = { host, port }
const control = { ...connection, connectionName: 'control' }
const admin = new Redis(control)

/** When something happened last, and the longest time without it since `begin`. */
class Pulse {
  #lastMs = performance.now()
  longestMs = 0

  begin(): void {
    this.#lastMs = performance.now()
    this.longestMs = 0
  }

  beat(): void {
    const nowMs = performance.now()
    this.longestMs = Math.max(this.longestMs, nowMs - this.#lastMs)
    this.#lastMs = nowMs
  }
}

const quiet = <T extends { on(event: 'error', listener: () => void): unknown }>(thing: T): T => {
  thing.on('error', () => {})
  return thing
}
const queues = Object.fromEntries(
  ['busy', 'idle', 'sleeping', 'heard'].map((name) => [
    name,
    quiet(new ShapedQueue(name, { connection: control, shape: { rate: '20/s' } })),
  ]),
) as Record<'busy' | 'idle' | 'sleeping' | 'heard', ShapedQueue>

const pulses = { busy: new Pulse(), events: new Pulse() }
const heardOf: Record<string, () => void> = {}
const worker = (name: string, process: () => Promise<void>, at: object = connection) =>
  quiet(new ShapedWorker(name, process, { connection: at, concurrency: 50, removeOnComplete: { count: 0 } }))
const workers = [
  worker('busy', async () => pulses.busy.beat()),
  worker('idle', async () => heardOf.idle?.()),
  worker('sleeping', async () => heardOf.sleeping?.()),
  worker('heard', async () => {}, control),
]
const events = quiet(new QueueEvents('heard', { connection }))
events.on('completed', () => pulses.events.beat())
const producer = quiet(new ShapedQueue('added', { connection, shape: { rate: '20/s' }, admitTimeoutMs: 500 }))
await Promise.all([...workers, producer, events].map((user) => user.waitUntilReady()))

const jobs = (count: number) => Array.from({ length: count }, () => ({ name: 'job', data: {} }))

/** Drops the packets of every connection but those that control. */
async function drop(): Promise<number> {
  const list = (await admin.client('LIST')) as string
  const ports = list
    .split('\n')
    .filter((line) => line !== '' && !line.includes('name=control'))
    .map((line) => /addr=\S+:(\d+)/.exec(line)?.[1] as string)
  for (const port of ports) {
    for (const side of ['--sport', '--dport']) {
      execFileSync('iptables', ['-A', 'INPUT', '-p', 'tcp', side, port, '-j', 'DROP'])
    }
  }
  return ports.length
}

/** ms from now until a worker has run a job. */
function untilRun(name: string, startMs: number): Promise<number> {
  return new Promise((resolve) => {
    heardOf[name] = () => resolve(performance.now() - startMs)
    setTimeout(() => resolve(GIVE_UP_MS), GIVE_UP_MS).unref()
  })
}

async function untilAdded(startMs: number): Promise<number> {
  while (performance.now() - startMs < GIVE_UP_MS) {
    const added = await producer.add('job', {}).catch(() => undefined)
    if (added) break
  }
  return performance.now() - startMs
}

for (let round = 0; round < rounds; round++) {
  await queues.busy.addBulk(jobs(800))
  await queues.heard.addBulk(jobs(800))
  await queues.sleeping.pauseUntil(Date.now() + HOUR_MS, { reason: 'asleep' })
  await queues.sleeping.add('job', {})
  await sleep(3000)
  const connections = await drop()
  const startMs = performance.now()
  for (const pulse of Object.values(pulses)) pulse.begin()
  const waits = Promise.all([untilRun('idle', startMs), untilRun('sleeping', startMs), untilAdded(startMs)])
  await sleep(100)
  await queues.idle.add('job', {})
  await queues.sleeping.clearPause()
  const [idle, sleeping, producing] = await waits
  await sleep(20_000)
  for (const pulse of Object.values(pulses)) pulse.beat()
  const { busy, events } = pulses
  const found = { connections, busy: busy.longestMs, idle, sleeping, producing, events: events.longestMs }
  process.stdout.write(`${JSON.stringify(found, (_, ms) => (typeof ms === 'number' ? Math.round(ms) : ms))}\n`)
  await Promise.all([queues.busy.drain(), queues.heard.drain()])
}
await Promise.all([...workers, producer, events, ...Object.values(queues)].map((user) => user.close()))
admin.disconnect()
await service.stop()
