import { InvalidInputError } from '../../errors.ts'
import { type Door, type KeyOf, rateLimit } from '../../http/index.ts'
import { createLimiter, type Limiter, type LimiterOptions, type LimitRedis } from '../../limits/index.ts'
import type { LimitConfig } from './config-file.ts'

/**
 * The limits of a configuration, as doors. A caller is identified by its token's name, else by its address.
 * @throws InvalidLimitError, InvalidRateError, InvalidInputError; LimitConflictError if another program defines a limit
 * of the same name differently
 */
export async function limitDoors(
  limits: readonly LimitConfig[],
  { redis, prefix }: { readonly redis: LimitRedis; readonly prefix: string },
  address: KeyOf,
  onFailure: (error: Error) => void,
): Promise<Door[]> {
  const keys: Readonly<Record<LimitConfig['per'], KeyOf>> = {
    caller: (request) => request.identity?.name ?? address(request),
    address,
    all: () => 'all',
  }
  return Promise.all(
    limits.map(async ({ per, tiers = {}, rate, burst, concurrency, ...common }) => {
      const limiterOf = (fields: object) =>
        createLimiter(redis, { ...common, ...fields, prefix, onFailure } as LimiterOptions)
      const byTier = Object.entries(tiers).map(([tier, terms]): [string, Limiter] => [
        tier,
        limiterOf({ ...terms, name: `${common.name}.${tier}` }),
      ])
      const limit: Record<string, Limiter> = {
        default: limiterOf({ rate, burst, concurrency }),
        ...Object.fromEntries(byTier),
      }
      await Promise.all(Object.values(limit).map(checkDefinition))
      return rateLimit({ limit, key: keys[per] })
    }),
  )
}

/** A limit is defined on first use; this way the start fails on a conflict rather than the first request. */
async function checkDefinition(limiter: Limiter): Promise<void> {
  try {
    await limiter.peek()
  } catch (error) {
    // A slow Redis must not prevent the start.
    if (error instanceof InvalidInputError) throw error
  }
}
