import { CostTooHighError } from '../errors.ts'
import { costUnder, mostUnder } from '../limits/queue-limits.ts'
import type { StoredShape } from '../shape/stored.ts'
import type { JobCosts } from './job-options.ts'

/**
 * Refuses a job that costs more than a limit of its queue ever allows at once, as far as this process knows the limits:
 * a job that slips through leaves when the limit is unused.
 * @throws CostTooHighError
 */
export function checkLimitCosts(shape: StoredShape | undefined, { cost = 1, costs }: JobCosts): void {
  if (!shape || shape.limits.length === 0 || shape.mode !== 'enforce') return
  for (const limit of shape.limits) {
    const most = mostUnder(limit)
    const asked = costUnder(limit, cost, costs)
    if (asked > most) throw new CostTooHighError(asked, most, limit.name)
  }
}
