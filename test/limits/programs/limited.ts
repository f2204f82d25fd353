import { Redis } from 'ioredis'
import { createLimiter, type LimiterOptions } from '../../../src/limits/index.ts'

/** A process that uses one limit; its parent says what to do: { do: 'take', count, release? } or 'close'. */
export interface Command {
  readonly do: 'take' | 'release' | 'close'
  readonly key?: string
  /** Takes all at once, default 1. */
  readonly count?: number
}
export type Message = { type: 'ready' } | { type: 'took'; allowed: number; errors: string[] } | { type: 'released' }

const [url, options] = process.argv.slice(2) as [string, string]
const redis = new Redis(url)
const limiter = createLimiter(redis, { timeoutMs: 10_000, ...(JSON.parse(options) as LimiterOptions) })
const leases = new Set<{ release(): Promise<boolean> }>()
const tell = (message: Message) => process.send?.(message)

async function take({ key, count = 1 }: Command): Promise<void> {
  const outcomes = await Promise.allSettled(Array.from({ length: count }, () => limiter.take(key)))
  const errors = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [String(outcome.reason)] : []))
  const allowed = outcomes.flatMap((outcome) =>
    outcome.status === 'fulfilled' && outcome.value.allowed ? [outcome.value] : [],
  )
  for (const { lease } of allowed) if (lease) leases.add(lease)
  tell({ type: 'took', allowed: allowed.length, errors })
}

async function release(): Promise<void> {
  await Promise.all([...leases].map((lease) => lease.release()))
  leases.clear()
  tell({ type: 'released' })
}

process.on('message', (command: Command) => {
  if (command.do === 'take') void take(command)
  else if (command.do === 'release') void release()
  else {
    redis.disconnect()
    process.disconnect()
  }
})
await redis.ping()
tell({ type: 'ready' })
