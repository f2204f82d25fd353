import { refusalOf } from '../admission/reply.ts'
import { withRestore } from '../admission/restore.ts'
import type { ShapedBackend } from '../backend/backend.ts'
import { checkDeadLetterQueue, type DeadLetter, readDeadLetter, redrivenJob } from '../backend/dead-letters.ts'
import { checkCallOptions, checkSignal } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import type { WaitOptions } from './add-when-free.ts'

/** Which dead letters to put back, and how many. */
export interface RedriveOptions {
  /** The dead-letter queue: the workers' `deadLetter` option. */
  from: string
  /** Selects among the dead letters of this queue. Default: all of them. */
  filter?: (letter: DeadLetter) => boolean | Promise<boolean>
  /** Maximum number of jobs to put back. Default: all. */
  limit?: number
  /** Attribution and reason, for the history of the queue. */
  by?: string
  reason?: string
  /** Stops the redrive before the next job; the promise rejects with its reason. The rest can be redriven later. */
  signal?: AbortSignal
}

/** Outcome of a redrive, in dead letters. */
export interface RedriveResult {
  /** Jobs that wait again; their dead letters are removed. */
  readonly redriven: number
  /**
   * Dead letters removed because their jobs were back already: a redrive was cut short, or a job was retried by hand.
   */
  readonly back: number
  /** Dead letters kept because another job now has the id. */
  readonly taken: number
  /** Dead letters that the filter rejected; they stay. */
  readonly skipped: number
}

/** The parts of the receiving queue that a redrive uses. */
export interface RedriveHost {
  readonly name: string
  readonly backend: ShapedBackend
  readonly prefix: string
  /** Repeats a refused attempt until there is a place. */
  untilPlace<T>(attempt: () => Promise<T>, options: WaitOptions): Promise<T>
}

/** The outcomes of `lua/verbs/redrive.lua`. */
type RedriveOutcome = 'gone' | 'back' | 'failed' | 'taken' | 'redriven'
type DeadLetterOutcome = Exclude<RedriveOutcome, 'failed'> | 'skipped'

/** Dead letters read at a time. */
const PAGE = 100

/**
 * Puts the jobs of all current dead letters back into their queue, oldest first, each when the queue has a place for
 * it.
 * @throws InvalidInputError; QueueUnavailableError; the signal's reason
 */
export async function redrive(host: RedriveHost, options: RedriveOptions): Promise<RedriveResult> {
  checkRedriveOptions(host, options)
  const { filter, limit = Number.POSITIVE_INFINITY, signal } = options
  const letters = host.backend.forQueue(options.from)
  const counts = { redriven: 0, back: 0, taken: 0, skipped: 0 }
  // Dead letters that arrive meanwhile stay for another redrive: a job that fails again would come back forever.
  let unread = await (await letters.client).llen(letters.toKey('wait'))
  let left = 0
  const gone = new Set<string>()
  while (unread > 0 && counts.redriven < limit) {
    const page = await pageOf(letters, left, Math.min(unread, PAGE))
    if (page.length === 0) break
    unread -= page.length
    for (const id of page) {
      if (counts.redriven >= limit) break
      signal?.throwIfAborted()
      const outcome = await redriveOne(host, letters, id, filter, signal)
      if (outcome !== undefined && outcome !== 'gone') counts[outcome] += 1
      if (stays(id, outcome, gone)) left += 1
    }
  }
  return counts
}

/**
 * Whether a dead letter stays in the list. If its data is gone, either another redrive removed it, or only its id is
 * left in the list: such an id turns up twice.
 */
function stays(id: string, outcome: DeadLetterOutcome | undefined, gone: Set<string>): boolean {
  if (outcome !== 'gone') return outcome !== 'redriven' && outcome !== 'back'
  const before = gone.has(id)
  gone.add(id)
  return before
}

/** The oldest dead letters after skipping those that stay: BullMQ adds at the head of the list. */
async function pageOf(letters: ShapedBackend, skip: number, count: number): Promise<string[]> {
  const client = await letters.client
  const ids = await client.lrange(letters.toKey('wait'), -skip - count, -skip - 1)
  return ids.reverse()
}

/** @returns undefined if the dead letter does not belong to this queue */
async function redriveOne(
  host: RedriveHost,
  letters: ShapedBackend,
  letterId: string,
  filter: RedriveOptions['filter'],
  signal: AbortSignal | undefined,
): Promise<DeadLetterOutcome | undefined> {
  const stored = await letters.getJobData(letterId)
  if (!stored) return 'gone'
  const letter = readDeadLetter(stored.data)
  if (letter?.queueName !== host.name || letter.prefix !== host.prefix) return undefined
  if (filter && !(await filter(letter))) return 'skipped'
  const attempt = () => putBack(host.backend, letter, letters.toKey(letterId))
  let outcome = await host.untilPlace(attempt, { signal })
  while (outcome === 'failed') {
    signal?.throwIfAborted()
    await host.backend.remove(letter.id, false)
    outcome = await host.untilPlace(attempt, { signal })
  }
  if (outcome === 'redriven' || outcome === 'back') await letters.remove(letterId, false)
  return outcome
}

/** @throws QueueFullError, CannotStartInTimeError */
async function putBack(backend: ShapedBackend, letter: DeadLetter, letterKey: string): Promise<RedriveOutcome> {
  const { store } = backend
  const preparing = store.prepared()
  if (preparing) await preparing
  const { script, args } = await backend.callToAdd(redrivenJob(letter, Date.now()), letter.id)
  const progress = letter.progress === undefined ? '' : JSON.stringify(letter.progress)
  const call = [script, ...args.slice(-3), letter.id, letter.timestamp, progress]
  const raw = await withRestore(
    () => store,
    async () => (await store.run('redrive', [letterKey, store.memory.identity, ...call])) as unknown[],
  )
  store.memory.learn(raw[3] as string[] | null)
  const refusal = refusalOf(raw, letter.queueName)
  if (refusal) throw refusal
  return raw[2] as RedriveOutcome
}

function checkRedriveOptions({ name }: RedriveHost, options: RedriveOptions): void {
  checkCallOptions('redrive', options, ['from', 'filter', 'limit', 'by', 'reason', 'signal'])
  checkSignal('redrive', (options as RedriveOptions).signal)
  const { from, limit, filter } = options
  if (from === undefined) throw new InvalidInputError('redrive needs { from }: the queue of dead letters')
  checkDeadLetterQueue(from, name)
  if (limit !== undefined && !(Number.isInteger(limit) && limit >= 1)) {
    throw new InvalidInputError(`limit must be a whole number >= 1; got ${String(limit)}`)
  }
  if (filter !== undefined && typeof filter !== 'function') {
    throw new InvalidInputError(`filter must be a function of a dead letter; got ${typeof filter}`)
  }
}
