import type { JobJson, ParentKeyOpts, RedisQueueBackend } from 'bullmq'
import type { Argument } from '../redis/commands.ts'
import { uniqueId } from '../redis/ids.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { FirstAnswer } from './confirmation.ts'
import { ONCE, type OnceCall } from './idempotency-key.ts'
import type { JobTerms } from './job-options.ts'
import type { AdmissionEstimate } from './reply.ts'

/** Job option that receives the job's estimate. A symbol, so that it is neither stored nor visible. */
export const ESTIMATE = Symbol('sluice.estimate')
/** The same for the position alone, which costs almost nothing if the job certainly fits. */
export const POSITION = Symbol('sluice.position')

/** Set to true for a job that another shard is asked for next: a refusal is not final then, and not counted. */
export const ASKED_ELSEWHERE = Symbol('sluice.asked-elsewhere')

/**
 * The format of `lua/admission/new-job.lua`: '' if there are none, otherwise place, priority, delay and deadline (ms).
 */
type JobTermsText = string

/** One call of a BullMQ add script: its keys and arguments, and what the admission needs to know about the job. */
export interface AddCall {
  readonly script: string
  readonly args: readonly Argument[]
  readonly job: AddedJob
  /** Noted as soon as a script with this job, or the claim of its bulk, is answered. */
  readonly first?: FirstAnswer
}

/** What the admission needs to know about a job. */
export interface AddedJob {
  readonly cost: number
  /** In units of limits. */
  readonly costs?: Readonly<Record<string, number>>
  /** The keys that limits with `by` count, besides its group. */
  readonly keys?: Readonly<Record<string, string>>
  /** The tier of limits that applies to it. */
  readonly tier?: string
  readonly id: string
  /** Its id was made for this call, so no other job has it. */
  readonly hasNewId?: boolean
  readonly deduplicationId: string
  /** Its place in the queue and its deadline. */
  readonly terms: JobTermsText
  /** Its group and its priority there. */
  readonly group?: readonly [id: string, priority: number]
  readonly schedulerId?: string
  readonly estimate?: (estimate: AdmissionEstimate) => void
  /** Receives the number of jobs ahead of it, if known. */
  readonly position?: (position: number) => void
  /** On the first job of a call: all its jobs are added under this idempotency key. */
  readonly once?: OnceCall
}

/** Index of `…:meta` among the keys of each add script; the queue's base is derived from it. */
const META_KEY_AT: Readonly<Record<string, number>> = {
  addStandardJob: 2,
  addPrioritizedJob: 1,
  addDelayedJob: 1,
  addParentJob: 0,
  addJobScheduler: 4,
}
/** BullMQ's script for jobs that wait for nothing. */
const STANDARD = 'addStandardJob'
/** BullMQ's script for jobs that wait for their children. */
const PARENT = 'addParentJob'
/** BullMQ's add scripts that bulks support. */
const IN_BULKS: readonly string[] = [STANDARD, 'addPrioritizedJob', 'addDelayedJob']

export function addedJob(job: JobJson, jobId: string | undefined, hasNewId = false): AddedJob {
  const options = job.opts as JobTerms & {
    [ESTIMATE]?: (estimate: AdmissionEstimate) => void
    [POSITION]?: (position: number) => void
    [ONCE]?: OnceCall
  }
  const { group, costs, keys, tier, [ESTIMATE]: estimate, [POSITION]: position, [ONCE]: once } = options
  // Assigned one by one, because few jobs have any of these.
  const added: { -readonly [Field in keyof AddedJob]: AddedJob[Field] } = {
    cost: options.cost ?? 1,
    id: jobId ?? '',
    hasNewId,
    deduplicationId: job.deduplicationId ?? '',
    terms: termsOf(job),
  }
  if (costs) added.costs = costs
  if (keys) added.keys = keys as NonNullable<AddedJob['keys']>
  if (tier !== undefined) added.tier = tier
  if (group) added.group = [group.id, group.priority ?? 0]
  if (estimate) added.estimate = estimate
  if (position) added.position = position
  if (once) added.once = once
  return added
}

/** The place of a new job in its queue, and its deadline. */
function termsOf(job: Pick<JobJson, 'opts'>): JobTermsText {
  const opts = job.opts as JobJson['opts'] & JobTerms & { [ASKED_ELSEWHERE]?: boolean }
  const { priority, lifo, delay, mustStartBefore, [ASKED_ELSEWHERE]: isAsked } = opts
  if (!priority && !lifo && !delay && !isAsked && mustStartBefore === undefined) return ''
  const delayMs = delay ? Math.max(0, Math.ceil(delay)) : 0
  // A plain BullMQ queue does not check deadlines.
  const deadline = Number.isSafeInteger(mustStartBefore) ? Math.max(0, mustStartBefore as number) : ''
  return `${isAsked ? 'a' : ''}${lifo ? 'l' : ''},${priority || ''},${delayMs || ''},${deadline}`
}

export function hasDeadline({ terms }: AddedJob): boolean {
  return terms !== '' && !terms.endsWith(',')
}

/** A job that waits for its children: its start cannot be estimated. */
function waitsForChildren(terms: JobTermsText): JobTermsText {
  const [, priority = ''] = terms.split(',')
  return `w,${priority},,`
}

/**
 * Whether a call can be part of a bulk: it requests no estimate, has no costs to check first, and is of a kind that
 * bulks support.
 */
export function fitsBulk({ script, job }: AddCall): boolean {
  return IN_BULKS.includes(script) && job.estimate === undefined && job.costs === undefined
}

/** A job to add. */
export interface JobToAdd {
  readonly job: JobJson
  /** '' or undefined if none was given. */
  readonly jobId: string | undefined
  /** Default: if none was given. */
  readonly hasNewId?: boolean
  readonly parentKeyOpts?: ParentKeyOpts | undefined
  /** The keys of its queue, if it is another one than the backend's. */
  readonly keys?: Parameters<BullmqAdd>[4]
  readonly first?: FirstAnswer
}

type BullmqAdd = RedisQueueBackend['addJobToTransaction']

/** BullMQ's code only passes it on. */
const NO_CLIENT = undefined as never

/**
 * Makes the calls with which BullMQ's own code would add jobs: a copy of the backend captures the calls of that code.
 */
export class AddCalls {
  readonly #copy: RedisQueueBackend
  readonly #add: BullmqAdd
  readonly #store: ShapeStore
  #sent: Pick<AddCall, 'script' | 'args'> | undefined

  /** @param add that of BullMQ's own backend */
  constructor(backend: RedisQueueBackend, add: BullmqAdd, store: ShapeStore) {
    this.#copy = sendingCalls(backend, (script, args) => {
      this.#sent = { script, args }
      return 0
    })
    this.#add = add
    this.#store = store
  }

  /**
   * Unless it fails, BullMQ's code sends the call before its first await: jobs keep the order of their calls. A job
   * without an id gets a unique one if a resent command must not add it twice: BullMQ's numeric ids cannot ensure that.
   * @returns undefined if BullMQ's code failed: then `making` has the error
   */
  make({ job, jobId, hasNewId = !jobId, parentKeyOpts, keys, first }: JobToAdd): {
    readonly call: AddCall | undefined
    readonly making: Promise<string>
  } {
    const id = jobId || (this.#store.memory.stored ? uniqueId() : '')
    this.#sent = undefined
    const making = this.#add.call(this.#copy, NO_CLIENT, job, id, parentKeyOpts, keys)
    const sent = this.#sent as Pick<AddCall, 'script' | 'args'> | undefined
    if (!sent) return { call: undefined, making }
    const { script, args } = sent
    const added = addedJob(job, id, hasNewId)
    return { call: first ? { script, args, job: added, first } : { script, args, job: added }, making }
  }

  /** @throws the error of BullMQ's code for one of them */
  async all(jobs: readonly JobToAdd[]): Promise<AddCall[]> {
    const made = jobs.map((job) => this.make(job))
    await Promise.all(made.map(({ making }) => making))
    return made.map(({ call }) => call as AddCall)
  }
}

/** The format of `lua/admission/new-job.lua`. */
export function describeJob({ script, job }: AddCall): string {
  const { cost, group, deduplicationId } = job
  const terms = script === PARENT ? waitsForChildren(job.terms) : job.terms
  const [id, priority] = group ?? ['', '']
  if (script === STANDARD && cost === 1 && terms === '' && deduplicationId === '' && !priority) {
    return group ? `/${id}` : ''
  }
  return `${script} ${cost} ${terms} ${deduplicationId === '' ? '' : 'd'} ${priority} ${id}`
}

/** Whether a job goes behind all waiting ones, which implies its position. */
export function isLast({ script, job }: AddCall): boolean {
  return script === STANDARD && !job.group
}

/** The key prefix of the queue. */
export function baseOfCall({ script, args }: Pick<AddCall, 'script' | 'args'>): string {
  return (args[META_KEY_AT[script] as number] as string).slice(0, -'meta'.length)
}

/** A script with these jobs, or the claim of their bulk, was answered. */
export function noteAnswer(calls: readonly AddCall[]): void {
  for (const { first } of calls) first?.note()
}

/** A copy of BullMQ's backend, whose code passes the calls of scripts to `send`. */
export function sendingCalls<B extends object>(backend: B, send: (script: string, args: Argument[]) => unknown): B {
  const value = (_client: unknown, script: string, args: Argument[]) => send(script, args)
  return Object.create(backend, { execCommand: { value } })
}
