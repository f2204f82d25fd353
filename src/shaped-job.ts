import { Job } from 'bullmq'
import type { ShapedBackend } from './backend.ts'
import { InvalidCostError } from './errors.ts'
import { checkCosts } from './job-options.ts'

/** An attempt may be settled again for so long. */
const SETTLED_MS = 86_400_000

/** A job as a processor of a ShapedWorker gets it. Its generics are Job's, in Job's order. */
// biome-ignore lint/suspicious/noExplicitAny: the defaults are those of BullMQ's Job
export class ShapedJob<DataType = any, ResultType = any, NameType extends string = string> extends Job<
  DataType,
  ResultType,
  NameType
> {
  /**
   * Says what the job cost in the end, where it was only an estimate when it was added: the rate and the limits are
   * charged the difference, or get it back. What other jobs were granted meanwhile stays. Each attempt is charged by
   * itself; to say the same twice changes nothing.
   *
   * ```ts
   * await job.settleCost({ tokens: response.usage.total_tokens })
   * ```
   * @param actual units of cost, or of limits by their units
   * @throws InvalidCostError
   */
  async settleCost(actual: number | Readonly<Record<string, number>>): Promise<void> {
    const costs = typeof actual === 'number' ? { '': actual } : actual
    checkCosts({ costs })
    if (Object.keys(costs).length === 0) throw new InvalidCostError('settleCost needs what the job cost; got nothing')
    const { store } = this.backend as unknown as ShapedBackend
    await store.run('settle-cost', [this.id, this.attemptsStarted, JSON.stringify(costs), SETTLED_MS])
  }
}
