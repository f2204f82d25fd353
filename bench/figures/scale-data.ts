import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import type { Figure, Row } from '../figure.ts'
import { SlowCommands, slowRow } from '../measure/slow-commands.ts'
import { makeQueue, removeQueue } from '../queues.ts'
import { memoryOf } from '../scale/deep-queue.ts'
import { paced } from '../scale/pacing.ts'

const MIB = 1024 * 1024
const WORK = { perSecond: 20, processes: 1, workers: 1, concurrency: 10, jobMs: 5 }

async function bytesThrough(client: Redis): Promise<{ in: number; out: number }> {
  const info = await client.info('stats')
  const of = (what: string) => Number(new RegExp(`^total_net_${what}_bytes:(\\d+)`, 'm').exec(info)?.[1])
  return { in: of('input'), out: of('output') }
}

function times(setup: string, bytes: number, jobs: number): Row {
  const each = bytes / jobs / MIB
  return { setup, asked: 'once', reached: `${each.toFixed(2)} times`, ok: each < 1.2, values: { bytes, jobs } }
}

export const scaleData: Figure = {
  name: 'scale-data',
  title: 'Jobs of 1 MB: memory, how often their data cross the network, the slowest script',
  run: async (bench) => {
    const { client } = bench
    const jobs = bench.quick ? 100 : 1000
    const slow = await SlowCommands.start(client)
    const queue = await makeQueue(bench, 'sluice', 'data', { rate: `${WORK.perSecond}/s`, capacity: jobs })
    const data = { text: 'x'.repeat(MIB) }
    const [memory, before] = [await memoryOf(bench), await bytesThrough(client)]
    for (let i = 0; i < jobs; i++) await queue.add('job', data)
    const added = await bytesThrough(client)
    const adding = await slow.slowest()
    const bytesPerJob = ((await memoryOf(bench)) - memory) / jobs
    for (let i = 0; i < 20; i++) await queue.add('job', data).catch(() => {})
    const refused = await bytesThrough(client)
    const refusing = await slow.slowest()
    const { starts } = await paced(bench, queue, WORK, () => sleep(3000))
    const worked = await bytesThrough(client)
    const working = await slow.slowest()
    await removeQueue(queue)
    return [
      { setup: 'memory per job', reached: `${(bytesPerJob / MIB).toFixed(2)} MiB`, values: { bytesPerJob } },
      times('sent to Redis by an add', added.in - before.in, jobs),
      times('sent to Redis by an add that is refused', refused.in - added.in, 20),
      times('sent to the worker', worked.out - refused.out, starts.length),
      slowRow('add: the slowest script', adding),
      slowRow('an add that is refused: the slowest script', refusing),
      slowRow('workers: the slowest script', working),
    ]
  },
}
