import { Job } from 'bullmq'
import type { ShapedBackend } from './backend.ts'
import { InvalidCostError } from './errors.ts'
import { checkUnits, MAX_COST } from './job-options.ts'

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
   * charged the difference, or get it back as far as it has not come back by itself since. What other jobs were granted
   * meanwhile stays. Each attempt is charged by itself; to say the same twice changes nothing.
   *
   * ```ts
   * await job.settleCost({ tokens: response.usage.total_tokens })
   * ```
   * @param actual units of cost, or of limits by their units
   * @throws InvalidCostError
   */
  async settleCost(actual: number | Readonly<Record<string, number>>): Promise<void> {
    const costs = typeof actual === 'number' ? { '': actual } : actual
    const entries = Object.entries(checkUnits(costs))
    if (entries.length === 0) throw new InvalidCostError('settleCost needs what the job cost; got nothing')
    for (const [unit, cost] of entries) {
      if (typeof cost === 'number' && cost >= 0 && cost <= MAX_COST) continue
      const what = unit === '' ? 'the cost' : `the cost in ${unit}`
      throw new InvalidCostError(`${what} must be a number from 0 to ${MAX_COST}; got ${JSON.stringify(cost) ?? cost}`)
    }
    const { store } = this.backend as unknown as ShapedBackend
    const args = [this.id, this.attemptsStarted, JSON.stringify(costs), SETTLED_MS]
    const reply = (await store.run('settle-cost', args)) as number | [string]
    if (typeof reply === 'object') throw new InvalidCostError(`no limit of this queue counts '${reply[0]}'`)
  }
}
