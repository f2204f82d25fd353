import { once } from 'node:events'
import type { Redis } from 'ioredis'
import type { Shape } from 'sluice'
import { startRedis } from '../../workers/services/redis.ts'
import { type Figure, type Row, withClient } from '../figure.ts'
import type { RedisAddress, System } from '../fleet/protocol.ts'
import {
  addInFlight,
  addJobs,
  amongGroups,
  makeQueue,
  makeWorker,
  OPEN_METER,
  type OptionsOf,
  removeQueue,
} from '../queues.ts'

const ASKED_MB = 2.5
const BULK = 100
const CONCURRENCY = [1, 50]

/** A queue that holds nothing, one with a meter and one with groups. */
const QUEUES: readonly { readonly shape: Shape; readonly opts?: OptionsOf }[] = [
  { shape: {} },
  { shape: OPEN_METER },
  { shape: { groups: {} }, opts: amongGroups(10) },
]

/** Jobs are added in each way, and drained. */
async function smallRun(redis: RedisAddress, system: System): Promise<void> {
  for (const { shape, opts = {} } of QUEUES) {
    const queue = await makeQueue({ redis }, system, 'scripts', system === 'sluice' ? shape : {})
    for (const concurrency of CONCURRENCY) {
      await addInFlight(queue, BULK, 1)
      await addInFlight(queue, BULK, 50)
      await addJobs(queue, BULK, system === 'sluice' ? opts : {}, BULK)
      const worker = makeWorker({ redis }, system, queue.name, { concurrency })
      await once(worker, 'drained')
      await worker.close()
    }
    await removeQueue(queue)
  }
}

async function memoryOf(client: Redis) {
  const info = await client.info('memory')
  const of = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0)
  return {
    mb: (of('used_memory_vm_total') + of('used_memory_scripts')) / 1e6,
    scripts: of('number_of_cached_scripts'),
    functions: of('number_of_functions'),
    evalMb: (of('used_memory_vm_eval') + of('used_memory_scripts_eval')) / 1e6,
    functionsMb: (of('used_memory_vm_functions') + of('used_memory_functions')) / 1e6,
  }
}

type Memory = Awaited<ReturnType<typeof memoryOf>>

/** On a Redis of its own, since scripts are never forgotten. */
async function memoryAfter(system: System): Promise<Memory> {
  const redis = await startRedis({ ignoreGiven: true })
  try {
    await smallRun(redis, system)
    return await withClient(redis, memoryOf)
  } finally {
    await redis.stop()
  }
}

function described({ mb, scripts, functions, evalMb, functionsMb }: Memory): string {
  const parts = `${scripts} scripts ${evalMb.toFixed(1)}, ${functions} functions ${functionsMb.toFixed(1)}`
  return `${mb.toFixed(1)} MB (${parts})`
}

export const scriptMemory: Figure = {
  name: 'script-memory',
  title: 'Memory that scripts and functions take in Redis, with their garbage, as INFO says',
  run: async () => {
    const [sluice, bullmq] = [await memoryAfter('sluice'), await memoryAfter('bullmq')]
    const row: Row = {
      setup: 'after adds in each way and drains, without and with a meter or groups',
      asked: `<= ${ASKED_MB} MB`,
      reached: described(sluice),
      ok: sluice.mb <= ASKED_MB,
      beside: described(bullmq),
      values: { sluice, bullmq },
    }
    return [row]
  },
}
