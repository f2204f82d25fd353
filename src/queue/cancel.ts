import { cancelFailure } from '../backend/cancellation.ts'
import { checkArgument, checkCallOptions, checkSignal } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import type { ShapeStore } from '../shape/store.ts'

export interface CancelOptions {
  /** Why: a non-empty string. It is part of the job's `failedReason`. */
  readonly reason: string
  /** Who. It is part of the job's `failedReason` and of the queue's history. */
  readonly by?: string | undefined
  /** Removes waiting jobs instead of failing them. Default false. */
  readonly remove?: boolean | undefined
}

/**
 * The outcome of a cancellation.
 *
 * - `failed`: it waited, and has failed
 * - `removed`: it waited, and is gone
 * - `aborting`: it runs, and its worker has been asked to abort it; it fails unless its processor returns first
 * - `stalled`: it runs, but its worker is gone; it fails instead of running again once BullMQ has found it
 * - `ended`: it has completed or failed before
 * - `scheduled`: it is the next iteration of a job scheduler, and stays; remove the scheduler
 * - `unknown`: there is no such job
 */
export type CancelOutcome = 'failed' | 'removed' | 'aborting' | 'stalled' | 'ended' | 'scheduled' | 'unknown'

/** Which jobs to cancel: those that match all given fields. */
export interface CancelFilter {
  /** The id of their group. */
  readonly group?: string
  readonly name?: string
  /** Jobs added longer ago than this, ms >= 0. */
  readonly olderThanMs?: number
}

export interface CancelManyOptions extends CancelOptions {
  /** Stops before the next part; the promise rejects with its reason. */
  readonly signal?: AbortSignal | undefined
}

/** The outcomes of cancelled jobs. */
export const CANCELLED = ['failed', 'removed', 'aborting', 'stalled'] as const satisfies readonly CancelOutcome[]

/** How many jobs were cancelled, by outcome. */
export type CancelCounts = Readonly<Record<(typeof CANCELLED)[number], number>>

const OPTIONS = ['reason', 'by', 'remove']

/** As in `lua/verbs/cancel-part.lua`. Running jobs last: waiting ones cannot start meanwhile and be missed. */
const PLACES = ['prioritized', 'wait', 'paused', 'delayed', 'waiting-children', 'active'] as const

/** Jobs that one call checks and cancels: together they take Redis less than 5 ms. */
const LOOKED_AT = 500
const CANCELLED_TOGETHER = 25

/** @throws InvalidInputError */
export async function cancelJob(store: ShapeStore, id: string, options: CancelOptions): Promise<CancelOutcome> {
  checkArgument(typeof id === 'string' && id !== '', 'cancelJob: the id of the job', 'a string that is not empty', id)
  checkCancelOptions('cancelJob', options, OPTIONS)
  return (await store.run('cancel-job', [id, ...cancelArguments(options)])) as CancelOutcome
}

/**
 * Searches the queue until no more jobs are found, because jobs may move meanwhile from an unsearched place to a
 * searched one. Jobs added meanwhile stay.
 * @param run runs each call
 * @throws InvalidInputError; the signal's reason
 */
export async function cancelJobs(
  run: <T>(call: (store: ShapeStore) => Promise<T>) => Promise<T>,
  filter: CancelFilter,
  options: CancelManyOptions,
): Promise<CancelCounts> {
  checkCancelOptions('cancelJobs', options, [...OPTIONS, 'signal'])
  checkSignal('cancelJobs', options.signal)
  checkCancelFilter(filter)
  const { olderThanMs = 0, ...named } = filter
  const { at } = await run((store) => store.readMeter())
  const before = Math.floor(Number(at) / 1000) - olderThanMs
  const total = noneCancelled()
  const places = filter.group === undefined ? PLACES : ['group', ...PLACES]
  const pass = async () => {
    let count = 0
    for (const place of places) {
      for (let from = 0; from >= 0; ) {
        options.signal?.throwIfAborted()
        const part = [place, from, LOOKED_AT, CANCELLED_TOGETHER, JSON.stringify({ ...named, before })]
        const reply = await run((store) => store.run('cancel-part', [...part, ...cancelArguments(options)]))
        const [next, outcomes] = reply as [number, (keyof CancelCounts)[]]
        from = next
        for (const outcome of outcomes) total[outcome] += 1
        count += outcomes.length
      }
    }
    return count
  }
  try {
    while ((await pass()) > 0);
  } finally {
    const { by, reason } = options
    const cancelled = Object.values(total).reduce((sum, count) => sum + count, 0)
    if (by && cancelled > 0) await run((store) => store.note('job', { cancelled, ...filter }, { by, reason }))
  }
  return total
}

export function noneCancelled(): Record<keyof CancelCounts, number> {
  return Object.fromEntries(CANCELLED.map((outcome) => [outcome, 0])) as Record<keyof CancelCounts, number>
}

function cancelArguments({ reason, by = '', remove = false }: CancelOptions): readonly string[] {
  return [reason, by, cancelFailure(reason, by), remove ? '1' : '']
}

function checkCancelOptions(call: string, options: CancelOptions, known: readonly string[]): void {
  const { reason, by, remove } = options ?? ({} as Partial<CancelOptions>)
  if (options) checkCallOptions(call, options, known)
  if (typeof reason !== 'string' || reason === '') {
    throw new InvalidInputError(`${call} needs { reason }: why the job is cancelled`)
  }
  checkArgument(by === undefined || typeof by === 'string', `${call}: by`, 'a string', by)
  checkArgument(remove === undefined || typeof remove === 'boolean', `${call}: remove`, 'a boolean', remove)
}

/** A value that is undefined by mistake would cancel all. */
function checkCancelFilter(filter: CancelFilter): void {
  checkCallOptions('cancelJobs', filter, ['group', 'name', 'olderThanMs'])
  for (const name of ['group', 'name'] as const) {
    const isRight = typeof filter[name] === 'string' && filter[name] !== ''
    checkArgument(!(name in filter) || isRight, `cancelJobs: ${name}`, 'a string that is not empty', filter[name])
  }
  if (!('olderThanMs' in filter)) return
  const { olderThanMs } = filter
  const isAge = typeof olderThanMs === 'number' && olderThanMs >= 0 && Number.isFinite(olderThanMs)
  checkArgument(isAge, 'cancelJobs: olderThanMs', 'a number of ms >= 0', olderThanMs)
}
