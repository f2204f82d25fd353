import type { Bench, Figure, Row } from '../figure.ts'
import { LIMITED_SERVERS, type LimitedServer } from '../gateway/protocol.ts'
import { ServerProcess } from '../gateway/server-process.ts'

const SECONDS = 10
const QUICK_SECONDS = 2
const CONNECTIONS = 50

interface Memory {
  readonly keys: number
  /** Bytes per key. */
  readonly redis: number
  readonly process: number
}

async function usedMemory({ client }: Bench): Promise<number> {
  return Number(/^used_memory:(\d+)/m.exec(await client.info('memory'))?.[1])
}

/** Each call has a different key. */
async function measure(bench: Bench, server: LimitedServer): Promise<Memory> {
  await bench.client.flushdb()
  const opened = await ServerProcess.start(bench, { server, queue: '', capacity: 0, perMinute: 1_000_000 })
  try {
    const options = { connections: CONNECTIONS, method: 'GET' } as const
    await opened.call('/', { ...options, seconds: 1, keyOf: () => 'warm' })
    const [redis, process] = [await usedMemory(bench), await opened.process.call('heapBytes')]
    const seconds = bench.quick ? QUICK_SECONDS : SECONDS
    const { ok } = await opened.call('/', { ...options, seconds, keyOf: (call) => `caller-${call}` })
    return {
      keys: ok,
      redis: ((await usedMemory(bench)) - redis) / ok,
      process: ((await opened.process.call('heapBytes')) - process) / ok,
    }
  } finally {
    await opened.stop()
  }
}

export const gatewayKeys: Figure = {
  name: 'gateway-keys',
  title:
    'Memory per distinct key of a limited route, each seen once: in Redis, and in the process after a full collection',
  headings: ['', 'keys', 'Redis, bytes per key', 'process, bytes per key'],
  run: async (bench) => {
    const rows: Row[] = []
    for (const server of LIMITED_SERVERS) {
      const memory = await measure(bench, server)
      const cells = [String(memory.keys), memory.redis.toFixed(0), memory.process.toFixed(0)]
      rows.push({ setup: server, reached: cells.join(', '), cells, values: { ...memory } })
    }
    return rows
  },
}
