import { Job } from 'bullmq'
import type { ShapedJobsOptions } from '../admission/job-options.ts'

/**
 * BullMQ's job; the priority of a job with a group applies within its group. Its generics are Job's, in Job's order.
 */
// biome-ignore lint/suspicious/noExplicitAny: the defaults are those of BullMQ's Job
export class GroupedJob<DataType = any, ResultType = any, NameType extends string = string> extends Job<
  DataType,
  ResultType,
  NameType
> {
  declare opts: ShapedJobsOptions

  override async changePriority(change: { priority?: number; lifo?: boolean }): Promise<void> {
    await super.changePriority(change)
    const { group } = this.opts
    if (!group) return
    this.opts.group = { ...group, priority: change.priority ?? 0 }
    // As in BullMQ's scripts.
    this.priority = 0
  }
}
