import type {
  Attribution,
  CancelOptions,
  DeadLetter,
  GroupFields,
  GroupOverride,
  LimitOverride,
  LimitValues,
  MeterState,
  ShapedQueue,
  ShapeField,
  ShapeOverride,
} from 'sluice'
import type { Inspector, InspectorOptions } from 'sluice/inspect'
import { checkDeadLetterQueue, type FailedChange, failureKind, type Unchanged } from 'sluice/internal'
import type { ShardedQueue } from 'sluice/sharding'
import type { Identity } from 'sluice-gateway'
import { ProblemError } from 'sluice-gateway/internal'
import type { Action } from './action.ts'
import { writingConnection } from './connections.ts'
import { checkReach, checkShapeReach } from './visible.ts'

export interface ChangesOptions {
  readonly connection: InspectorOptions['connection']
  readonly prefix: string
  /** Knows which queues are sharded. */
  readonly inspector: Inspector
  /** Called at the end of a change that took a while. */
  readonly onEnd: (news: LongChangeNews) => void
}

/** The author of a change. */
export interface Changer {
  readonly by: string
  /** undefined where callers are not authenticated. */
  readonly identity: Identity | undefined
}

/** Changes that take as long as there are no places. */
type BulkAction = Extract<Action, { action: `${string}Jobs` }>
type DeadLetterAction = Extract<Action, { action: 'redrive' | 'dropDeadLetter' | 'dropDeadLetters' }>
type ShortAction = Exclude<Action, BulkAction | DeadLetterAction>

/** Makes the requested changes. A queue is opened for each change: changes are rare, and nothing stays open. */
export class QueueChanges {
  readonly #options: ChangesOptions
  readonly #long: LongChanges

  constructor(options: ChangesOptions) {
    this.#options = options
    this.#long = new LongChanges(options.onEnd)
  }

  /**
   * @throws InvalidShapeError, InvalidRateError, InvalidGroupError, NoGroupsError, InvalidInputError, LimitConflictError;
   *   QueueFullError; QueueUnavailableError; ProblemError, 403 for a change that affects queues outside the token's,
   *   404 and 409 for a job that is not there or in another state
   */
  async make(queueName: string, action: Action, who: Changer): Promise<void> {
    switch (action.action) {
      case 'redrive':
      case 'dropDeadLetter':
      case 'dropDeadLetters':
        checkReach(who.identity, action.from)
        checkDeadLetterQueue(action.from, queueName)
        await this.#checkWhole(queueName)
        return this.#changeLetters(queueName, action, who.by)
      case 'retryJobs':
      case 'removeJobs':
      case 'deadLetterJobs':
        await this.#checkWhole(queueName)
        return this.#changeMatching(queueName, action, who)
      default:
        await this.#changeShort(queueName, action, who)
    }
  }

  async #changeShort(queueName: string, action: ShortAction, who: Changer): Promise<void> {
    const act = async (queue: ShapedQueue | ShardedQueue) => {
      if (action.action === 'setShape') checkShapeReach(who.identity, action.shape, await queue.getShape())
      if (action.action === 'deadLetterJob') checkReach(who.identity, action.to)
      await change(queue, action, who.by)
    }
    const { connection, prefix } = this.#options
    const shards = await this.#options.inspector.shardsOf(queueName)
    if (shards === 0) return this.#with(queueName, act)
    const { ShardedQueue } = await import('sluice/sharding')
    const terms = { connection: writingConnection(connection), prefix, skipMetasUpdate: true, shards }
    const queue = new ShardedQueue(queueName, terms)
    queue.on('error', () => {})
    try {
      await act(queue)
    } finally {
      await queue.close()
    }
  }

  /** @throws ProblemError 422 for a sharded queue */
  async #checkWhole(queueName: string): Promise<void> {
    const shards = await this.#options.inspector.shardsOf(queueName)
    if (shards === 0) return
    const detail = `a queue with ${shards} shards cannot be changed in this way: do it in each shard, by its own prefix`
    throw new ProblemError(422, detail)
  }

  /** Stops the changes that run. */
  async close(): Promise<void> {
    await this.#long.close()
  }

  async #changeLetters(queueName: string, action: DeadLetterAction, by: string): Promise<void> {
    const { from, reason } = action
    if (action.action === 'dropDeadLetter') return this.#dropDeadLetter(queueName, action, by)
    const { failedReason } = action
    if (action.action === 'dropDeadLetters') {
      return this.#long.start(queueName, `dead letters of "${from}" are dropped`, (signal) =>
        this.#dropDeadLetters(queueName, { from, failedReason, signal }, { by, reason }),
      )
    }
    const { jobId } = action
    const filter = (letter: DeadLetter) =>
      (jobId === undefined || letter.id === jobId) && letter.failedReason.includes(failedReason ?? '')
    this.#long.start(queueName, `dead letters of "${from}" are put back`, (signal) =>
      this.#with(queueName, (queue) => queue.redrive({ from, filter, by, reason, signal })),
    )
  }

  /** @throws ProblemError 404 */
  async #dropDeadLetter(
    queueName: string,
    { from, letterId, reason }: Extract<Action, { action: 'dropDeadLetter' }>,
    by: string,
  ): Promise<void> {
    // Loaded late, as the queue is.
    const { dropDeadLetter, findDeadLetter } = await import('sluice/internal')
    const jobId = await this.#with(from, async (letters) => {
      const letter = await findDeadLetter(letters, letterId)
      const isOurs = letter !== undefined && this.#isOf(queueName, letter)
      return isOurs && (await dropDeadLetter(letters, letterId)) ? letter.id : undefined
    })
    if (jobId === undefined) throw new ProblemError(404, 'there is no such dead letter of this queue')
    await this.#note(queueName, { 'dead letter dropped': jobId, in: from }, { by, reason })
  }

  async #dropDeadLetters(
    queueName: string,
    { from, failedReason, signal }: { from: string; failedReason: string | undefined; signal: AbortSignal },
    who: Attribution,
  ): Promise<{ dropped: number }> {
    const { dropDeadLetters } = await import('sluice/internal')
    let dropped = 0
    const filter = (letter: DeadLetter) =>
      this.#isOf(queueName, letter) && letter.failedReason.includes(failedReason ?? '')
    const onDropped = () => {
      dropped += 1
    }
    try {
      await this.#with(from, (letters) => dropDeadLetters(letters, { filter, signal, onDropped }))
    } finally {
      const which = failedReason === undefined ? {} : { failedReason }
      if (dropped > 0) await this.#note(queueName, { 'dead letters dropped': dropped, in: from, ...which }, who)
    }
    return { dropped }
  }

  /** A queue of dead letters may keep those of several queues. */
  #isOf(queueName: string, letter: DeadLetter): boolean {
    return letter.queueName === queueName && letter.prefix === this.#options.prefix
  }

  #note(queueName: string, change: Readonly<Record<string, unknown>>, who: Attribution): Promise<void> {
    return this.#with(queueName, (queue) => queue.backend.store.note('job', change, who))
  }

  #changeMatching(queueName: string, action: BulkAction, { by, identity }: Changer): void {
    const { failedReason, reason } = action
    if (action.action === 'deadLetterJobs') {
      checkReach(identity, action.to)
      checkDeadLetterQueue(action.to, queueName)
    }
    const failed = failedChange(action)
    this.#long.start(queueName, `failed jobs are ${DONE[failed.kind]}`, (signal) =>
      this.#with(queueName, async (queue) => {
        let changed = 0
        const onChanged = () => {
          changed += 1
        }
        // Loaded late, as the queue is.
        const { changeMatching } = await import('sluice/internal')
        try {
          await changeMatching(queue, failed, { failedReason, signal, onChanged })
        } finally {
          const which = failedReason === undefined ? {} : { failedReason }
          if (changed > 0)
            await queue.backend.store.note('job', { [DONE[failed.kind]]: changed, ...which }, { by, reason })
        }
        return { changed }
      }),
    )
  }

  async #with<T>(name: string, use: (queue: ShapedQueue) => Promise<T>): Promise<T> {
    const { connection, prefix } = this.#options
    // Loaded late: callers that only read do not need BullMQ, which takes much memory.
    const { ShapedQueue } = await import('sluice')
    const queue = new ShapedQueue(name, { connection: writingConnection(connection), prefix, skipMetasUpdate: true })
    // The call that needs the connection rejects with its error.
    queue.on('error', () => {})
    try {
      await queue.waitUntilReady()
      return await use(queue)
    } finally {
      await queue.close()
    }
  }
}

async function change(queue: ShapedQueue | ShardedQueue, action: ShortAction, by: string): Promise<void> {
  const { reason } = action
  switch (action.action) {
    case 'setShape':
      return queue.setShape(action.shape as ShapeOverride, changeOf(by, reason, action.ttlMs))
    case 'setMode':
      return queue.setShape({ mode: action.mode }, changeOf(by, reason, action.ttlMs))
    case 'clearShape':
      return queue.clearShape({ fields: action.fields as ShapeField[] | undefined, by, reason })
    case 'pause':
      if (action.ttlMs === undefined) return queue.pause({ by, reason })
      return queue.pauseUntil((await nowMsOf(queue)) + action.ttlMs, { by, reason })
    case 'resume':
      // Shards of which one does not answer are resumed as far as they do.
      return queue.clearPause({ by, reason }).finally(() => queue.resume())
    case 'setGroup':
    case 'clearGroup':
    case 'pauseGroup':
    case 'resumeGroup':
      return changeGroup('each' in queue ? await queue.queueOfGroup(action.group) : queue, action, by)
    case 'setLimit':
    case 'clearLimit':
      return changeLimit('each' in queue ? await queue.queueOfGroup(action.keys.group ?? '') : queue, action, by)
    case 'retryJob':
    case 'removeJob':
    case 'deadLetterJob':
    case 'promoteJob':
      return changeJob('each' in queue ? await queue.queueOfJob(action.jobId) : queue, action, { by, reason })
    case 'cancelJob':
      return cancel(queue, action.jobId, { by, reason })
  }
}

/** By Redis's clock, which decides when a pause ends. */
async function nowMsOf(queue: ShapedQueue | ShardedQueue): Promise<number> {
  const state = await queue.meter()
  const { at } = 'each' in state ? (state.each[0] as MeterState) : state
  return at.getTime()
}

type GroupAction = Extract<ShortAction, { action: `${string}Group` }>

async function changeGroup(queue: ShapedQueue, action: GroupAction, by: string): Promise<void> {
  const { reason, group } = action
  switch (action.action) {
    case 'setGroup':
      return queue.setGroup(group, action.settings as GroupOverride, changeOf(by, reason, action.ttlMs))
    case 'clearGroup':
      return queue.clearGroup(group, { fields: action.fields as (keyof GroupFields)[] | undefined, by, reason })
    case 'pauseGroup':
      return queue.pauseGroup(group, changeOf(by, reason, action.ttlMs))
    case 'resumeGroup':
      return queue.resumeGroup(group, { by, reason })
  }
}

type LimitAction = Extract<ShortAction, { action: `${string}Limit` }>

async function changeLimit(queue: ShapedQueue, action: LimitAction, by: string): Promise<void> {
  const { reason, limit, keys } = action
  if (action.action === 'setLimit') {
    return queue.setLimit(limit, keys, action.values as LimitOverride, changeOf(by, reason, action.ttlMs))
  }
  return queue.clearLimit(limit, keys, { fields: action.fields as (keyof LimitValues)[] | undefined, by, reason })
}

function changeOf(by: string, reason: string, ttlMs: number | undefined) {
  return { by, reason, ...(ttlMs !== undefined && { ttlMs }) }
}

/** The end of a change that took a while. */
interface LongChangeNews {
  readonly queue: string
  readonly change: string
  readonly result?: object
  readonly error?: unknown
}

/** Changes that run in the background after their request: each waits for places in its queue, possibly for hours. */
class LongChanges {
  readonly #running = new Map<string, Promise<void>>()
  readonly #stop = new AbortController()
  readonly #onEnd: (news: LongChangeNews) => void

  /** @param onEnd called when a change ends, unless {@link close} stopped it */
  constructor(onEnd: (news: LongChangeNews) => void) {
    this.#onEnd = onEnd
  }

  /**
   * Starts a change.
   * @param change what it does: one of a kind runs at a time in a queue
   * @throws ProblemError 409 while the same one runs
   */
  start(queue: string, change: string, run: (signal: AbortSignal) => Promise<object>): void {
    const key = JSON.stringify([queue, change])
    if (this.#running.has(key)) throw new ProblemError(409, `this runs already: ${change}`)
    const running = run(this.#stop.signal).then(
      (result) => this.#onEnd({ queue, change, result }),
      (error: unknown) => {
        if (!this.#stop.signal.aborted) this.#onEnd({ queue, change, error })
      },
    )
    this.#running.set(
      key,
      running.finally(() => this.#running.delete(key)),
    )
  }

  /** Stops them before their next job. The rest can be changed later. */
  async close(): Promise<void> {
    this.#stop.abort(new Error('the dashboard is closed'))
    await Promise.all(this.#running.values())
  }
}

type JobAction = Extract<Action, { action: 'retryJob' | 'removeJob' | 'deadLetterJob' | 'promoteJob' }>

/** How the history names what was done with failed jobs. */
const DONE: Readonly<Record<FailedChange['kind'], string>> = {
  retry: 'retried',
  remove: 'removed',
  deadLetter: 'moved to dead letters',
}

const WHY_UNCHANGED: Readonly<Record<Unchanged, string>> = {
  'not failed': 'the job has not failed any more',
  'child runs': 'a child of the job runs: the job cannot be removed now',
  scheduled: 'the job belongs to a scheduler: remove that instead',
}

/**
 * Changes one job by hand.
 * @throws QueueFullError, GroupFullError, CannotStartInTimeError if a job is to be retried and its queue has no place;
 *   ProblemError 404 or 409 if there is no such job, or if it is in another state. Nothing was changed then
 */
async function changeJob(queue: ShapedQueue, action: JobAction, who: Attribution): Promise<void> {
  const { jobId } = action
  if (action.action === 'promoteJob') {
    await checkState(queue, jobId, 'delayed')
    await promote(queue, jobId)
    return queue.backend.store.note('job', { promoted: jobId }, who)
  }
  await checkState(queue, jobId, 'failed')
  const change = failedChange(action)
  // Loaded late, as the queue is.
  const { changeFailed } = await import('sluice/internal')
  const unchanged = await changeFailed(queue, jobId, change)
  if (unchanged === 'not failed') await checkState(queue, jobId, 'failed')
  if (unchanged) throw new ProblemError(409, WHY_UNCHANGED[unchanged])
  await queue.backend.store.note('job', { [DONE[change.kind]]: jobId }, who)
}

/** What an action asks for, of one job or of many. */
function failedChange(
  action: Extract<Action, { action: `${'retry' | 'remove' | 'deadLetter'}${'Job' | 'Jobs'}` }>,
): FailedChange {
  switch (action.action) {
    case 'retryJob':
    case 'retryJobs':
      return { kind: 'retry' }
    case 'removeJob':
    case 'removeJobs':
      return { kind: 'remove' }
    default:
      return { kind: 'deadLetter', to: action.to }
  }
}

async function cancel(queue: ShapedQueue | ShardedQueue, jobId: string, why: CancelOptions): Promise<void> {
  const outcome = await queue.cancelJob(jobId, why)
  if (outcome === 'unknown') noJob()
  if (outcome === 'ended') throw new ProblemError(409, 'the job has ended: this is for jobs that wait or run')
  if (outcome === 'scheduled') throw new ProblemError(409, WHY_UNCHANGED.scheduled)
}

/** A delayed job holds a place already. */
async function promote(queue: ShapedQueue, jobId: string): Promise<void> {
  const job = (await queue.getJob(jobId)) ?? noJob()
  try {
    await job.promote()
  } catch (error) {
    if (!(error instanceof Error) || failureKind(error)) throw error
    // Another change was faster.
    await checkState(queue, jobId, 'delayed')
    throw new ProblemError(409, error.message)
  }
}

/** An id may be the name of one of BullMQ's lists or sets: its state is unknown then, too. */
async function checkState(queue: ShapedQueue, jobId: string, needed: 'failed' | 'delayed'): Promise<void> {
  const state = await queue.getJobState(jobId)
  if (state === 'unknown') noJob()
  if (state !== needed) throw new ProblemError(409, `the job is ${state}: this is for ${needed} jobs`)
}

function noJob(): never {
  throw new ProblemError(404, 'there is no such job')
}
