import type { Redis } from 'ioredis'
import { createLimiter } from 'sluice/limits'
import { type Figure, type Row, withClient } from '../figure.ts'
import { attack, bytesOf, overload, PERIOD_MS, SLACK_MS } from '../limits/accuracy.ts'
import { CONTENDERS, openContender, type Quota, ruleOf, type Take, takeFrom } from '../limits/contenders.ts'

const QUOTA: Quota = { limit: 100, periodS: PERIOD_MS / 1000, burst: 100 }
const FOR_PERIODS = 10
const QUICK_FOR_PERIODS = 3
/** Its burst is a second window in addition to the first: twice as much passes permanently. */
const TWO_LIMITS = 'rate-limiter-flexible BurstyRateLimiter'
/** More at once would be too slow for the critical moments. */
const ATTACKED_TOGETHER = 4

interface Choice {
  readonly name: string
  readonly key: string
  readonly take: Take
}

function choices(redis: Redis): readonly Choice[] {
  const even = createLimiter(redis, { ...ruleOf('gcra', { ...QUOTA, burst: 1 }), name: 'even' })
  const all: [string, Take][] = CONTENDERS.filter((one) => one !== TWO_LIMITS).map((one) => [
    one,
    openContender(one, redis, QUOTA),
  ])
  all.push(['gcra with burst 1', takeFrom(even)])
  // Keys of equal length, since they count towards the bytes.
  return all.map(([name, take], i) => ({ name, take, key: `user-${100 + i}` }))
}

async function attackAll(all: readonly Choice[]): Promise<readonly number[]> {
  const most: number[] = []
  for (let at = 0; at < all.length; at += ATTACKED_TOGETHER) {
    const together = all.slice(at, at + ATTACKED_TOGETHER)
    most.push(...(await Promise.all(together.map(({ take, key }) => attack(take, `attacked-${key}`, QUOTA.limit)))))
  }
  return most
}

async function compare(redis: Redis, periods: number): Promise<Row[]> {
  await redis.flushdb()
  const all = choices(redis)
  await Promise.all(all.map(({ take, key }) => take(`first-${key}`)))
  const attacked = await attackAll(all)
  const overloaded = await Promise.all(
    all.map(async ({ take, key }) => ({
      ...(await overload(take, key, QUOTA.limit, periods)),
      bytes: await bytesOf(redis, `:${key}`),
    })),
  )
  return all.map(({ name }, i): Row => {
    const boundary = attacked[i] as number
    const { most, mostSettled, share, bytes } = overloaded[i] as (typeof overloaded)[number]
    const cells = [String(boundary), String(most), String(mostSettled), share.toFixed(3), String(bytes)]
    return { setup: name, reached: cells.join(', '), cells, values: { boundary, most, mostSettled, share, bytes } }
  })
}

export const limitsChoosing: Figure = {
  name: 'limits-choosing',
  title:
    `100 per second, bursts of 100: the most within 1 s (less ${SLACK_MS} ms) under the boundary attack and under ` +
    'three times the limit, from rest and after 2 s; the share of the limit that passed then; bytes of a busy key',
  headings: ['', 'boundary attack', 'overload from rest', 'overload settled', 'share', 'bytes per key'],
  run: ({ redis, quick }) => withClient(redis, (client) => compare(client, quick ? QUICK_FOR_PERIODS : FOR_PERIODS)),
}
