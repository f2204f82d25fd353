import type { ShardedQueue } from '../../../src/sharding/index.ts'

/** A shard that does not answer for so long obeys nothing that a worker could see. */
const ANSWER_MS = 150

interface Lease {
  readonly number: string
  readonly perSecond: number
  readonly untilMs: number
}

/** Units per second that all shards allowed at one moment, and how many of them answered. */
export interface LeasedTogether {
  readonly perSecond: number
  readonly answered: number
}

/**
 * What the leases in force together allow. Each shard is read twice: what was the same before and after a moment was in
 * force at it. Undefined if a lease changed meanwhile. All Redis have to be on one machine.
 */
export async function leasedTogether(queue: ShardedQueue): Promise<LeasedTogether | undefined> {
  const before = await leasesOf(queue)
  const atMs = Date.now()
  const after = await leasesOf(queue)
  if (before.some((lease, shard) => lease?.number !== after[shard]?.number)) return undefined
  const answered = before.filter((lease) => lease !== undefined)
  const inForce = answered.filter(({ untilMs }) => untilMs > atMs)
  return { perSecond: inForce.reduce((sum, { perSecond }) => sum + perSecond, 0), answered: answered.length }
}

function leasesOf(queue: ShardedQueue): Promise<(Lease | undefined)[]> {
  return Promise.all(
    queue.each.map(async ({ backend }) => {
      const client = (await backend.client) as unknown as { hmget(...args: string[]): Promise<(string | null)[]> }
      const read = client.hmget(backend.store.key, 'lease', 'overrides').catch(() => undefined)
      const fields = await within(read, ANSWER_MS)
      return fields && leaseOf(fields)
    }),
  )
}

function leaseOf([number, overrides]: (string | null)[]): Lease {
  const { rate } = JSON.parse(overrides ?? '{}') as { rate?: { value: [number, number]; until: number } }
  return {
    number: number ?? '',
    perSecond: rate ? (rate.value[0] * 1000) / rate.value[1] : 0,
    untilMs: rate?.until ?? 0,
  }
}

function within<T>(call: Promise<T>, ms: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms)
  })
  return Promise.race([call, late]).finally(() => clearTimeout(timer))
}
