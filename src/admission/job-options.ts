import type { JobsOptions } from 'bullmq'
import {
  InvalidCostError,
  InvalidDeadlineError,
  InvalidGroupError,
  InvalidInputError,
  InvalidJobIdError,
  InvalidLimitError,
} from '../errors.ts'
import { checkField, wholeWithin } from '../field-check.ts'
import { isLimitName, NAME_RULE } from '../limits/limit-keys.ts'
import { MAX_TIMER_MS } from '../max-timer.ts'
import { isWellFormed } from '../plain-text.ts'
import { checkGroupId, checkKeyValue } from '../shape/groups.ts'
import { checkOptionNames } from './option-names.ts'

/** BullMQ's job options, plus the job's cost and terms. */
export interface ShapedJobsOptions extends JobsOptions {
  /** Units of the rate, above 0 and at most the burst. Default 1. */
  cost?: number
  /** Units of other limits, by unit: `{ tokens: 1200 }`. A job with 0 does not wait for that limit. Default: 1 of each. */
  costs?: Readonly<Record<string, number>>
  /** A Date, or ms since 1970: a job that cannot start by then fails instead and uses no slot. */
  mustStartBefore?: Date | number
  /** After this many ms the processor's `signal` is aborted. An error thrown after that becomes a {@link RunTimeoutError}. */
  runTimeoutMs?: number
  /** The group that the job belongs to; the shape must have `groups`. */
  group?: JobGroup
  /**
   * Resources that the job uses besides its group: `{ model: 'gpt-large', host: 'api.example.com' }`. At most 16; values of 1 to 256
   * bytes.
   */
  keys?: Readonly<Record<string, string | number>>
  /** Which of a limit's `tiers` applies to the job. */
  tier?: string
}

export interface JobGroup {
  /** What the jobs of the group share, such as a tenant: 1 to 256 bytes. */
  id: string
  /** The order within the group, lowest first: 0 to 2,097,152. Default 0. */
  priority?: number
}

/** The units that a job takes from the limits of its queue. */
export type JobCosts = Pick<ShapedJobsOptions, 'cost' | 'costs'>

/** The job options that Sluice reads. */
export type JobTerms = Pick<
  ShapedJobsOptions,
  'cost' | 'costs' | 'mustStartBefore' | 'runTimeoutMs' | 'group' | 'keys' | 'tier'
>

/** Key names of a queue that BullMQ and Sluice use: a job with such an id would break the queue permanently. */
const RESERVED: ReadonlySet<string> = new Set([
  ...['active', 'wait', 'waiting', 'waiting-children', 'paused', 'id', 'delayed', 'prioritized', 'stalled-check'],
  ...['completed', 'failed', 'stalled', 'repeat', 'limiter', 'meta', 'events', 'pc', 'marker', 'de', 'dn', 'metrics'],
  'priority',
])

/** More than any bucket holds; it keeps the arithmetic of the meter exact. */
export const MAX_COST = 1_000_000_000

/** BullMQ's, and as in lua/groups/queue-groups.lua. */
const PRIORITY = wholeWithin(0, 2_097_152)

/** The longest time of a timer. */
const RUN_TIMEOUT = wholeWithin(1, MAX_TIMER_MS)

/** The prefix of the ids of job schedulers. */
const SCHEDULER_ID = /^repeat:/

/** Options of BullMQ whose scripts fail for other values only after adding other jobs of a bulk. */
const NUMBERS: ReadonlySet<string> = new Set(['delay', 'timestamp', 'priority', 'attempts'])

/**
 * @throws InvalidInputError for a name that Redis cannot store
 */
export function checkJobName(name: unknown): void {
  if (typeof name === 'string' || typeof name === 'number') return
  throw new InvalidInputError(`the name of a job must be a string; got ${shown(name)}`)
}

/**
 * Checks every job of a call, apart from its options.
 * @throws InvalidInputError
 */
export function checkJobList(call: string, jobs: unknown): void {
  if (!Array.isArray(jobs)) throw new InvalidInputError(`${call} takes an array of jobs; got ${shown(jobs)}`)
  for (const job of jobs as readonly unknown[]) {
    if (typeof job !== 'object' || job === null) {
      throw new InvalidInputError(`${call} takes jobs such as { name, data, opts }; got ${shown(job)}`)
    }
    checkJobName((job as { readonly name?: unknown }).name)
  }
}

/**
 * Checks BullMQ's own options whose wrong values only a script would detect, perhaps after adding other jobs.
 * @throws InvalidInputError
 */
function checkValues(options: object): void {
  for (const name in options) {
    // It has an error of its own: see deadlineMs.
    if (name === 'mustStartBefore') continue
    const value = (options as Readonly<Record<string, unknown>>)[name]
    if (typeof value === 'string' || value === undefined || value === null) continue
    if (typeof value === 'object') checkParts(name, value)
    else if (typeof value === 'number' ? !Number.isFinite(value) : NUMBERS.has(name)) throw wrongValue(name, value)
  }
}

/** Checks the fields of an option such as `backoff`. */
function checkParts(name: string, value: object): void {
  if (NUMBERS.has(name) || value instanceof Date) throw wrongValue(name, value)
  for (const [part, inner] of Object.entries(value)) {
    if (typeof inner === 'number' && !Number.isFinite(inner)) throw wrongValue(`${name}.${part}`, inner)
  }
}

function wrongValue(name: string, value: unknown): InvalidInputError {
  return new InvalidInputError(`the job option '${name}' must be a finite number; got ${shown(value)}`)
}

/** @throws InvalidInputError */
function checkDeduplication(deduplication: JobsOptions['deduplication']): void {
  if (deduplication === undefined || deduplication === null) return
  const { id, ttl } = deduplication as { readonly id?: unknown; readonly ttl?: unknown }
  const isId = (typeof id === 'string' && id !== '' && isWellFormed(id)) || typeof id === 'number'
  if (!isId)
    throw new InvalidInputError(
      `deduplication.id must be a string that is not empty, well-formed in Unicode; got ${shown(id)}`,
    )
  if (ttl === undefined || (Number.isSafeInteger(ttl) && (ttl as number) >= 0)) return
  throw new InvalidInputError(`deduplication.ttl must be a whole number of ms; got ${shown(ttl)}`)
}

/** Bigints and symbols have no JSON. */
function shown(value: unknown): string {
  const isText = (typeof value === 'object' && !(value instanceof Date)) || typeof value === 'string'
  return (isText ? JSON.stringify(value) : undefined) ?? String(value)
}

/**
 * @throws InvalidJobIdError
 */
export function checkJobId(jobId: string | undefined): void {
  // BullMQ generates an id if it is empty.
  if (jobId === undefined || jobId === '') return
  if (typeof jobId !== 'string' || !isWellFormed(jobId)) {
    throw new InvalidJobIdError(`job id must be a string, well-formed in Unicode; got ${shown(jobId)}`)
  }
  if (RESERVED.has(jobId)) {
    throw new InvalidJobIdError(
      `job id '${jobId}' is one of BullMQ's own key names: it would break the queue; use another id`,
    )
  }
  if (jobId.includes(':') && !SCHEDULER_ID.test(jobId)) {
    throw new InvalidJobIdError(
      `job id '${jobId}' must not contain ':', which separates the parts of BullMQ's keys; use another character`,
    )
  }
}

/**
 * @throws InvalidCostError
 */
function checkCost(cost: unknown): void {
  if (cost === undefined) return
  if (typeof cost !== 'number' || !(cost > 0 && cost <= MAX_COST)) {
    throw new InvalidCostError(`cost must be a number > 0 and at most ${MAX_COST}; got ${shown(cost)}`)
  }
}

/**
 * @throws InvalidCostError
 */
export function checkCosts(options: JobCosts | undefined): void {
  checkCost(options?.cost)
  if (options?.costs === undefined) return
  for (const [unit, cost] of Object.entries(checkUnits(options.costs))) {
    if (typeof cost === 'number' && cost >= 0 && cost <= MAX_COST) continue
    throw new InvalidCostError(`costs.${unit} must be a number from 0 to ${MAX_COST}; got ${shown(cost)}`)
  }
}

/** @throws InvalidCostError */
export function checkUnits(costs: unknown): Readonly<Record<string, unknown>> {
  if (typeof costs !== 'object' || costs === null || Array.isArray(costs)) {
    throw new InvalidCostError(`costs must be an object of units and numbers; got ${shown(costs)}`)
  }
  return costs as Readonly<Record<string, unknown>>
}

/**
 * BullMQ's script would put the job where another priority has its jobs.
 * @throws InvalidInputError
 */
export function checkPriority(priority: unknown): void {
  checkField('priority', priority, PRIORITY, InvalidInputError)
}

/** @throws InvalidGroupError */
function checkGroup(group: unknown, options: JobsOptions): void {
  if (group === undefined) return
  if (typeof group !== 'object' || group === null) {
    throw new InvalidGroupError(`group must be { id, priority }; got ${shown(group)}`)
  }
  const { id, priority, ...others } = group as Readonly<Record<string, unknown>>
  const [other] = Object.keys(others)
  if (other) {
    const instead = other === 'maxSize' ? ". BullMQ Pro's maxSize is the capacity of the shape's groups" : ''
    throw new InvalidGroupError(`group has no field '${other}'; it has id, priority${instead}`)
  }
  checkGroupId(id)
  if (priority !== undefined) checkField('group.priority', priority, PRIORITY, InvalidGroupError)
  if (options.priority) throw new InvalidGroupError('a job of a group has group.priority instead of priority')
  if (options.lifo) throw new InvalidGroupError('a job of a group cannot be lifo; use group.priority')
}

const MAX_KEYS = 16
/** Names that limits count without a key of the job. */
export const NO_KEYS: readonly string[] = ['group', 'queue']

/**
 * @returns the keys as stored
 * @throws InvalidGroupError
 */
export function checkKeys(keys: unknown): Readonly<Record<string, string>> {
  if (typeof keys !== 'object' || keys === null || Array.isArray(keys)) {
    throw new InvalidGroupError(
      `keys must be an object of names and values, such as { model: 'x' }; got ${shown(keys)}`,
    )
  }
  const entries = Object.entries(keys)
  if (entries.length > MAX_KEYS) throw new InvalidGroupError(`keys must be at most ${MAX_KEYS}; got ${entries.length}`)
  const stored = entries.map(([name, value]) => {
    if (isLimitName(name) && !NO_KEYS.includes(name)) return [name, checkKeyValue(name, value)]
    const rule = `${NAME_RULE}, but not 'group' or 'queue'`
    throw new InvalidGroupError(`a name in keys must be ${rule}; got ${shown(name)}`)
  })
  return Object.fromEntries(stored)
}

/** @throws InvalidLimitError */
export function checkTierName(tier: unknown): void {
  if (isLimitName(tier)) return
  throw new InvalidLimitError(`the tier of a job must be a name of ${NAME_RULE}; got ${shown(tier)}`)
}

/** @throws InvalidDeadlineError */
function deadlineMs(given: unknown): number {
  const ms = given instanceof Date ? given.getTime() : given
  if (typeof ms !== 'number' || !Number.isFinite(ms)) {
    throw new InvalidDeadlineError(`mustStartBefore must be a valid Date, or ms since 1970; got ${shown(given)}`)
  }
  return Math.floor(ms)
}

/**
 * Checks defaults of jobs.
 * @returns the options as stored: the keys as strings
 * @throws InvalidCostError, InvalidGroupError, InvalidInputError, UnsupportedOptionError
 */
export function checkJobDefaults<O extends ShapedJobsOptions | undefined>(options: O): O {
  if (options === undefined || options === null) return options
  if (typeof options !== 'object')
    throw new InvalidInputError(`the options of a job are an object; got ${shown(options)}`)
  checkOptionNames('job', options)
  checkCosts(options)
  checkGroup(options.group, options)
  if (options.tier !== undefined) checkTierName(options.tier)
  if (options.runTimeoutMs !== undefined) {
    checkField('runTimeoutMs', options.runTimeoutMs, RUN_TIMEOUT, InvalidInputError)
  }
  const checked = options.keys === undefined ? options : { ...options, keys: checkKeys(options.keys) }
  checkDeduplication(options.deduplication)
  checkValues(options)
  return checked
}

/**
 * Checks a caller's options for a job. Only Redis can decide whether the deadline can be met, by its clock.
 * @returns the options as stored: the deadline in ms since 1970, and the keys as strings
 * @throws InvalidJobIdError, InvalidCostError, InvalidDeadlineError, InvalidInputError, UnsupportedOptionError
 */
export function checkJobOptions<O extends ShapedJobsOptions | undefined>(options: O): O {
  checkJobId(options?.jobId)
  const checked = checkJobDefaults(options)
  if (checked?.mustStartBefore === undefined) return checked
  return { ...checked, mustStartBefore: deadlineMs(checked.mustStartBefore) }
}
