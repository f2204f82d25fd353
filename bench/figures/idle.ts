import { setTimeout as sleep } from 'node:timers/promises'
import type { Queue } from 'bullmq'
import type { Bench, Figure, Row } from '../figure.ts'
import type { System } from '../fleet/protocol.ts'
import { CallMonitor, type Calls, CONNECTION_WATCH } from '../measure/call-monitor.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'

const WORKERS = 16
const BACKLOG = 100
const HELD_MS = 60_000
const SETTLE_MS = 2000
/** BullMQ's blocking wait: the blocking call, and the fetch after each timeout. */
const BLOCKING_WAIT = ['bzpopmin', 'moveToActive']

async function makeIdle(bench: Bench, system: System, held: boolean): Promise<Queue> {
  if (system === 'bullmq') return makeQueue(bench, system, 'idle')
  const queue = await makeQueue(bench, 'sluice', 'idle', { rate: '50/s' })
  if (held) await queue.pauseUntil(Date.now() + HELD_MS, { reason: 'bench' })
  return queue
}

async function openIdle(bench: Bench, system: System, held: boolean): Promise<Queue> {
  const queue = await makeIdle(bench, system, held)
  if (held) await addJobs(queue, BACKLOG)
  const spec = { system, queue: queue.name, redis: bench.redis, workers: WORKERS, concurrency: 5, jobMs: 0 } as const
  const limited = system === 'bullmq' && held ? { ...spec, limiter: { max: 1, duration: HELD_MS } } : spec
  await bench.fleet.process(`calls ${system}`).call('open', limited)
  return queue
}

const total = (calls: Calls): number => [...calls.values()].reduce((sum, times) => sum + times, 0)

function list(calls: Calls): string {
  const entries = [...calls].map(([name, times]) => `${name} ${times}`)
  return entries.length > 0 ? entries.join(', ') : 'none'
}

function row(setup: string, ours: Calls, theirs: Calls): Row {
  const waits = new Map([...ours].filter(([name]) => name !== CONNECTION_WATCH))
  const others = [...waits.keys()].filter((name) => !BLOCKING_WAIT.includes(name))
  return {
    setup,
    asked: "BullMQ's blocking wait only, beside the watch of the process's connection",
    reached: list(ours),
    ok: others.length === 0 && total(waits) <= total(theirs),
    beside: list(theirs),
    values: { sluice: Object.fromEntries(ours), bullmq: Object.fromEntries(theirs) },
  }
}

export const idle: Figure = {
  name: 'idle',
  title: `Redis calls of ${WORKERS} idle workers over 20 s`,
  run: async (bench) => {
    const monitor = await CallMonitor.start(bench.client)
    const opened: { queue: Queue; system: System }[] = []
    try {
      for (const held of [false, true]) {
        for (const system of ['sluice', 'bullmq'] as const) {
          opened.push({ queue: await openIdle(bench, system, held), system })
        }
      }
      await sleep(SETTLE_MS)
      monitor.reset()
      await sleep(bench.quick ? 6000 : 20_000)
      const [empty, stockEmpty, paused, limited] = opened.map(({ queue }) => monitor.of(queue.name)) as [
        Calls,
        Calls,
        Calls,
        Calls,
      ]
      return [
        row('the queue is empty', empty, stockEmpty),
        row('the meter is paused, a backlog waits (BullMQ: limiter closed)', paused, limited),
      ]
    } finally {
      for (const { queue, system } of opened) {
        await bench.fleet.process(`calls ${system}`).call('close', queue.name)
        await removeQueue(queue)
      }
      monitor.stop()
    }
  },
}
