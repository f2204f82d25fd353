import type { Redis } from 'ioredis'
import { ShapedQueue } from 'sluice'
import { createLimiter } from 'sluice/limits'
import { simulate } from '../../src/simulate/simulation.ts'
import { connectionTo } from '../figure.ts'
import { scriptOf } from './script-of.ts'
import type { WorstInput } from './worst-inputs.ts'

const TOGETHER = 1000
const SHARDS = 64

/** What limiters send. */
export function limiters(redis: Redis): WorstInput[] {
  // One command at a time takes long.
  const timeoutMs = 60_000
  const log = createLimiter(redis, { timeoutMs, name: 'log', algorithm: 'sliding-window-log', rate: '1000000/hour' })
  const wide = createLimiter(redis, { timeoutMs, name: 'wide', rate: '1000000/s', burst: 1_000_000 })
  const slow = createLimiter(redis, { timeoutMs, name: 'slow', rate: '100/s' })
  const leases = createLimiter(redis, { timeoutMs, name: 'leases', algorithm: 'concurrency', concurrency: 100_000 })
  return [
    {
      what: `${TOGETHER} decisions at once`,
      run: () => Promise.all(Array.from({ length: TOGETHER }, (_, i) => wide.take(i))),
    },
    {
      what: `${TOGETHER} charges of one log`,
      run: () => Promise.all(Array.from({ length: TOGETHER }, () => log.take('a'))),
    },
    {
      what: `${TOGETHER} leases`,
      run: async () => {
        const taken = await Promise.all(Array.from({ length: TOGETHER }, () => leases.take('a')))
        await taken[0]?.lease?.extend()
        await Promise.all(taken.map(({ lease }) => lease?.release()))
      },
    },
    {
      what: 'penalties, blocks, modes',
      run: async (round) => {
        await createLimiter(redis, { timeoutMs, name: `new-${round}`, rate: '5/s' }).take('a')
        await log.penalty('a', 100)
        await log.reward('a', 100)
        await log.block('b', 1000)
        await log.reset('a')
        await log.setMode('shadow')
        await log.setMode(null)
      },
    },
    {
      what: 'turns that are waited for, and given back',
      run: async () => {
        const stop = new AbortController()
        const waits = Array.from({ length: 50 }, () => slow.wait('a', { signal: stop.signal }).catch(() => {}))
        await waits[0]
        stop.abort()
        await Promise.all(waits)
      },
    },
  ]
}

/** What sharded queues and simulations send. */
export function otherPrograms(redis: Redis): WorstInput[] {
  const { host = '', port = 0 } = redis.options
  return [
    {
      what: `the ledger of ${SHARDS} shards`,
      run: async (round) => {
        const queue = new ShapedQueue(`sharded-${round}`, {
          connection: connectionTo({ host, port }),
          shape: { rate: '6400/s', burst: SHARDS, capacity: 100_000, concurrency: 1000 },
        })
        await queue.add('job', {})
        const script = scriptOf(queue)
        await script('claim-shards', SHARDS, '1')
        const [, report] = (await script('apply-lease', '', '', '', '', '', '')) as [number, string]
        for (let i = 0; i < 3; i++) {
          const [, nowUs] = (await script('grant-leases', SHARDS, '', '1')) as [number, string]
          await script('grant-leases', SHARDS, nowUs, '1', ...Array.from({ length: SHARDS }, () => report))
        }
        await queue.close()
      },
    },
    {
      what: 'a simulation',
      run: async () => {
        const arrivals = Array.from({ length: 20_000 }, (_, i) => ({
          ...{ atUs: i * 1000, cost: 1, priority: 0, delayMs: 0 },
        }))
        await simulate(redis, { rate: '900/s', capacity: 1000 }, arrivals as never)
      },
    },
  ]
}
