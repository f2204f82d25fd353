import { type FlowJob, type FlowOpts, FlowProducer, type FlowProducerOptions, type Job, type JobNode } from 'bullmq'
import {
  checkJobDefaults,
  checkJobList,
  checkJobOptions,
  type JobTerms,
  type ShapedJobsOptions,
} from '../admission/job-options.ts'
import { checkOptionNames } from '../admission/option-names.ts'
import type { ShapedBackend } from '../backend/backend.ts'
import { shapedBackendFactory } from '../backend/factory.ts'
import { GroupedJob } from '../backend/grouped-job.ts'
import { checkArgument } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import type { FunctionsOption } from '../redis/functions.ts'
import { withShapedTelemetry } from '../reports/telemetry.ts'
import { AdmitTimeout, checkAdmitTimeout } from './unavailable.ts'

/** Options of a {@link ShapedFlowProducer}: BullMQ's, and the timeout of an admission. */
export interface ShapedFlowProducerOptions extends FlowProducerOptions {
  /** ms, default 5000. */
  admitTimeoutMs?: number
  /**
   * How scripts run: as Redis Functions of a library that the first program loads ('auto'; with EVAL where Redis has no
   * functions or does not let this user load them), or always with EVAL ('never'). Default 'auto'. A connection that
   * several objects share uses EVAL if one of them says 'never'.
   */
  functions?: FunctionsOption
}

/** A node of a flow: BullMQ's, with options for the job's cost and its latest start. */
export interface ShapedFlowJob {
  name: string
  queueName: string
  data?: unknown
  prefix?: string
  opts?: FlowJob['opts'] & JobTerms
  children?: ShapedFlowJob[]
}

/** BullMQ's FlowProducer, with flows that are admitted whole or not at all, over all their queues. */
export class ShapedFlowProducer extends FlowProducer<ShapedBackend> {
  readonly #admitTimeout: AdmitTimeout

  constructor(options: ShapedFlowProducerOptions) {
    const isObject = typeof options === 'object' && options !== null
    checkArgument(isObject, 'the options of a flow producer', 'an object, such as { connection }', options)
    checkOptionNames('flow producer', options)
    const { admitTimeoutMs, ...opts } = options
    checkAdmitTimeout(admitTimeoutMs)
    super(withShapedTelemetry(opts), shapedBackendFactory({ alwaysShaped: true }))
    this.#admitTimeout = new AdmitTimeout(this.backend.connection, admitTimeoutMs)
  }

  protected override get Job(): typeof Job {
    return GroupedJob as typeof Job
  }

  /**
   * Adds a flow.
   * @throws QueueFullError naming the queue that has no room for its part of the flow; then nothing was added anywhere
   * @throws TooLargeError, CostTooHighError, QueueUnavailableError, InvalidJobIdError, InvalidCostError,
   * InvalidDeadlineError
   */
  override async add(flow: ShapedFlowJob, opts?: FlowOpts): Promise<JobNode> {
    const checked = checkFlow(flow)
    const checkedOpts = opts?.queuesOptions ? { ...opts, queuesOptions: withDefaults(opts.queuesOptions) } : opts
    return this.#admitTimeout.run(flow.queueName, () => super.add(checked as FlowJob, checkedOpts))
  }

  /** Adds several flows, all or none. */
  override async addBulk(flows: ShapedFlowJob[]): Promise<JobNode[]> {
    checkJobList('addBulk', flows)
    const checked = flows.map((flow) => checkFlow(flow) as FlowJob)
    return this.#admitTimeout.run(flows[0]?.queueName ?? '', () => super.addBulk(checked))
  }
}

/** @throws the errors of the default job options of a queue */
function withDefaults(queuesOptions: NonNullable<FlowOpts['queuesOptions']>): NonNullable<FlowOpts['queuesOptions']> {
  const checked = Object.entries(queuesOptions).map(([queueName, options]) => {
    const defaultJobOptions = checkJobDefaults(options.defaultJobOptions as ShapedJobsOptions | undefined)
    return [queueName, defaultJobOptions ? { ...options, defaultJobOptions } : options] as const
  })
  return Object.fromEntries(checked)
}

/** @throws InvalidInputError, and the errors of wrong options */
function checkFlow(node: ShapedFlowJob): ShapedFlowJob {
  checkJobList('a flow', [node])
  const { opts, children, queueName } = node
  if (typeof queueName !== 'string' || queueName === '') {
    throw new InvalidInputError(`each job of a flow needs its queueName; "${node.name}" has ${String(queueName)}`)
  }
  return {
    ...node,
    ...(opts ? { opts: checkJobOptions(opts as ShapedJobsOptions) as NonNullable<ShapedFlowJob['opts']> } : {}),
    ...(children ? { children: childrenOf(children).map(checkFlow) } : {}),
  }
}

/** @throws InvalidInputError */
function childrenOf(children: ShapedFlowJob[]): ShapedFlowJob[] {
  checkJobList('children', children)
  return children
}
