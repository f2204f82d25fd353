import { checkArgument, checkCallOptions, checkSignal } from '../call-options.ts'
import { InvalidInputError, MoveError, QueueUnavailableError } from '../errors.ts'
import type { QueueStatus } from '../inspect/queue-status.ts'
import { isScheduled } from '../limits/schedule.ts'
import { countText } from '../plain-text.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import { intervalUs, parseRate } from '../rate.ts'
import { isPassing } from '../redis/failures.ts'
import type { GroupOverride } from '../shape/groups.ts'
import type { EffectiveShape } from '../shape/stored.ts'
import {
  checkSchedulers,
  checkShapes,
  copyGroups,
  copyHolds,
  copyLimits,
  copyOverrides,
  moveSchedulers,
} from './carry.ts'
import { MoveRecord, type RecordedMove } from './move-record.ts'
import { MoveTime } from './move-time.ts'
import type { ShardedState } from './options.ts'
import { inspectorOf } from './parts.ts'
import type { ShardedQueue } from './queue.ts'

export interface MoveOptions {
  /** Who moves the queue, and why: for the history of the new one. */
  readonly by: string
  readonly reason: string
  /**
   * How long the move may take, ms. Then it rejects, even if Redis is silent, and the new queue stays paused unless it
   * was about to be resumed. Default: no limit.
   */
  readonly timeoutMs?: number | undefined
  /** Stops the move in the same way; the promise rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
  /**
   * Whether the old queue is removed in the end, with its completed and failed jobs. Its workers and producers must be
   * closed by then. Default false.
   */
  readonly obliterate?: boolean | undefined
  /** Called after each check of the old queue, twice a second. */
  readonly onProgress?: ((progress: MoveProgress) => void) | undefined
}

/**
 * Why an old queue does not drain: it is paused, shards with jobs have no worker, only jobs of paused groups,
 * delayed jobs or parents that wait for children of other queues are left, or Redis does not answer.
 */
export type MoveHold = 'paused' | 'workers' | 'groups' | 'delayed' | 'children' | 'unavailable'

/** What is left of an old queue. If `hold` is `unavailable`, nothing is known, and all counts are 0. */
export interface MoveProgress {
  /** `draining`: the old queue has jobs. `resting`: it has none, and its last departures still count. */
  readonly phase: 'draining' | 'resting'
  readonly waiting: number
  readonly delayed: number
  readonly waitingChildren: number
  readonly active: number
  /** Schedulers with due next jobs, which start in the old queue. */
  readonly schedulers: number
  /** Jobs added to the old queue since this call began: producers still use it. */
  readonly arrived: number
  readonly hold: MoveHold | undefined
  /** When the first delayed job is due, if `hold` is `delayed`. */
  readonly nextDueAt: Date | undefined
  /** How long the new queue stays paused after the last departure of the old one, ms. */
  readonly restMs: number | undefined
}

/** The outcome of a move. */
export interface MoveResult {
  /** Groups, overrides of the shape and schedulers that this call carried over. */
  readonly groups: number
  readonly overrides: number
  readonly schedulers: number
  /** Whether jobs leave the new queue. False: it was paused before the move, and still is. */
  readonly resumed: boolean
  /** Whether the old queue is removed. */
  readonly obliterated: boolean
  /** Failed jobs of the old queue, which stay in it until it is removed. */
  readonly failed: number
  /**
   * Queues of dead letters of the old queue's shards with their dead letters, which stay, each under the prefix of its
   * shard.
   */
  readonly deadLetters: readonly { readonly prefix: string; readonly queue: string; readonly letters: number }[]
}

const OPTIONS = ['by', 'reason', 'timeoutMs', 'signal', 'obliterate', 'onProgress']
/** Time between two checks of the old queue. */
const LOOK_MS = 500
const WEEK_MS = 604_800_000

/**
 * Moves a sharded queue to one with another name, usually with another number of shards: pauses the new one, which
 * accepts jobs meanwhile, carries over schedulers and run-time settings, waits until the old one has no jobs and its
 * last departures no longer count, and resumes the new one. So the rates hold over both queues, and no job is lost or
 * runs twice. After a failure or a crash, repeat the call: it continues where it stopped.
 * @throws MoveError if the move cannot begin or continue; InvalidInputError, InvalidShapeError, ShardCountError,
 * QueueUnavailableError, QueueFullError if the new queue has no place for the job of a scheduler
 */
export async function moveShardedQueue(
  from: ShardedQueue,
  to: ShardedQueue,
  options: MoveOptions,
): Promise<MoveResult> {
  checkMove(from, to, options)
  return new Move(from, to, options).run()
}

/** @throws InvalidInputError */
function checkMove(from: ShardedQueue, to: ShardedQueue, options: MoveOptions): void {
  const call = 'moveShardedQueue'
  checkCallOptions(call, options, OPTIONS)
  const { by, reason, timeoutMs, signal, obliterate, onProgress } = options
  if (!by || !reason) throw new InvalidInputError(`${call} needs { by, reason }: who moves the queue, and why`)
  const isTime = timeoutMs === undefined || (Number.isFinite(timeoutMs) && timeoutMs > 0)
  checkArgument(isTime, `${call}: timeoutMs`, 'a number of ms > 0', timeoutMs)
  checkSignal(call, signal)
  checkArgument([undefined, true, false].includes(obliterate), `${call}: obliterate`, 'true or false', obliterate)
  const isCall = onProgress === undefined || typeof onProgress === 'function'
  checkArgument(isCall, `${call}: onProgress`, 'a function', onProgress)
  const areQueues = [from, to].every((queue) => Array.isArray(queue?.each) && typeof queue.meter === 'function')
  checkArgument(areQueues, `${call}: from and to`, 'two ShardedQueue objects', [typeof from, typeof to])
  if (from.name !== to.name) return
  throw new InvalidInputError(`the old and the new queue must have different names; got "${from.name}" twice`)
}

/** An old queue at one moment. */
interface Look {
  readonly state: ShardedState
  readonly shards: readonly QueueStatus[]
  readonly isEmpty: boolean
  /** By a person, who does not expect its jobs to start elsewhere. */
  readonly isPaused: boolean
  /** Changes with each job that comes, leaves or ends. */
  readonly mark: string
}

class Move {
  readonly #from: ShardedQueue
  readonly #to: ShardedQueue
  readonly #options: MoveOptions
  readonly #record: MoveRecord
  readonly #time: MoveTime
  readonly #carried = { groups: 0, overrides: 0, schedulers: 0 }
  #acceptedAtFirst: number | undefined
  /** The known state of the new queue, for an error. */
  #newQueue = 'is as it was'

  constructor(from: ShardedQueue, to: ShardedQueue, options: MoveOptions) {
    this.#from = from
    this.#to = to
    this.#options = options
    this.#record = new MoveRecord(from, to)
    this.#time = new MoveTime(options, (timeoutMs) => this.#late(timeoutMs))
  }

  async run(): Promise<MoveResult> {
    try {
      return await this.#run()
    } finally {
      this.#time.close()
    }
  }

  async #run(): Promise<MoveResult> {
    const { obliterate = false } = this.#options
    if (obliterate && (await this.#time.run(() => this.#isRemoved()))) {
      await this.#time.run(() => this.#from.obliterate())
      return { ...this.#carried, resumed: true, obliterated: true, failed: 0, deadLetters: [] }
    }
    const begun = await this.#time.run(() => this.#begin())
    if (begun.phase === 'draining') this.#newQueue = 'stays paused, if the move has paused it'
    if (begun.phase !== 'done') await this.#moveOn(begun)
    const found = await this.#time.run(() => this.#look())
    const deadLetters = await this.#time.run(() => lettersOf(this.#from))
    if (obliterate) await this.#time.run(() => this.#obliterate(found))
    const failed = found.shards.reduce((sum, one) => sum + one.failedKept, 0)
    return { ...this.#carried, resumed: !begun.wasPaused, obliterated: obliterate, failed, deadLetters }
  }

  async #moveOn(begun: RecordedMove): Promise<void> {
    const { by, reason } = this.#options
    if (begun.phase === 'resuming') return this.#resume(begun)
    await this.#time.run(() => this.#record.reach(begun.number, 'draining'))
    if (!begun.wasPaused) await this.#time.run(() => this.#to.pause({ by, reason }))
    await this.#time.run(() => this.#record.dropRest())
    if (!begun.isCopied) await this.#time.run(() => this.#copy(begun))
    if (!(await this.#drain(begun))) return
    // Not later: once jobs leave the new queue, its own feedback counts.
    await this.#time.run(() => copyHolds(this.#from, this.#to, by))
    // The pause may have come after another call's resume, so a new queue that is still held is resumed in any case.
    await this.#resume(begun)
  }

  /** Whether an earlier call has removed the old queue, or died shortly before the end. */
  async #isRemoved(): Promise<boolean> {
    if (await this.#from.getShape()) return false
    await stateOf(this.#to)
    return (await this.#record.read())?.phase === 'done'
  }

  /** Where to begin or continue. Nothing is changed if something is wrong. */
  async #begin(): Promise<RecordedMove> {
    const [old, renewed] = await Promise.all([stateOf(this.#from), stateOf(this.#to)])
    const found = await this.#record.read()
    const isEmpty = old.depth + old.active === 0
    if (found?.phase === 'done' && isEmpty) return found
    const arePaused = renewed.each.every(({ paused }) => paused)
    // Jobs leave some of its shards already.
    if (found?.phase === 'resuming' && !arePaused) return found
    const abandoned = arePaused ? this.#record.abandoned : undefined
    this.#check(old, renewed, found ?? abandoned)
    await checkSchedulers(this.#from, this.#to)
    if (found && found.phase !== 'done') return { ...found, phase: 'draining' }
    return this.#record.begin(abandoned ? abandoned.wasPaused : arePaused)
  }

  /** @throws MoveError, InvalidShapeError */
  #check(old: KnownState, renewed: KnownState, found: RecordedMove | undefined): void {
    checkShapes(this.#from, this.#to, old.shape, renewed.shape)
    const paused = old.each.flatMap((shard, i) => (shard.paused ? [i] : []))
    if (paused.length > 0) {
      const which = paused.length === old.each.length ? '' : ` in ${countText(paused.length, 'shard')}`
      throw new MoveError(this.#from.name, 'paused', `is paused${which}: expected it to drain; resume it first`)
    }
    const jobs = renewed.depth + renewed.active
    if (found || jobs === 0) return
    const came = `has ${countText(jobs, 'job')}: expected an empty queue, or one that a move has begun to fill`
    throw new MoveError(this.#to.name, 'not empty', came)
  }

  async #copy({ number }: RecordedMove): Promise<void> {
    this.#carried.overrides = await copyOverrides(this.#from, this.#to)
    this.#carried.groups = await copyGroups(this.#from, this.#to)
    await copyLimits(this.#from, this.#to)
    await this.#record.copied(number)
  }

  /** False if another call has ended the move. */
  async #drain(begun: RecordedMove): Promise<boolean> {
    for (;;) {
      const seen = await this.#untilEmpty(begun)
      if (!seen) return false
      const now = await unlessAway(this.#rest(begun, seen))
      if (now === 'ended') return false
      if (now?.isEmpty && !now.isPaused && now.mark === seen.mark) return true
    }
  }

  async #rest(begun: RecordedMove, seen: Look): Promise<Look | 'ended'> {
    const restMs = await this.#time.run(() => restMsOf(this.#from, this.#to))
    this.#report({ ...seen, schedulers: 0, phase: 'resting', restMs })
    await this.#time.sleep(restMs)
    const now = await this.#time.run(() => this.#look())
    return (await this.#time.run(() => this.#isHeld(begun))) ? now : 'ended'
  }

  /** Undefined if another call has ended the move. */
  async #untilEmpty(begun: RecordedMove): Promise<Look | undefined> {
    for (;;) {
      const found = await unlessAway(this.#step(begun))
      if (found === 'ended') return undefined
      if (found?.isEmpty && !found.isPaused && found.schedulers === 0) return found
      this.#report({ phase: 'draining', ...found })
      await this.#time.sleep(LOOK_MS)
    }
  }

  async #step(begun: RecordedMove): Promise<(Look & { readonly schedulers: number }) | 'ended'> {
    if (!(await this.#time.run(() => this.#isHeld(begun)))) return 'ended'
    const { moved, left } = await this.#time.run(() => moveSchedulers(this.#from, this.#to, this.#record))
    this.#carried.schedulers += moved
    return { ...(await this.#time.run(() => this.#look())), schedulers: left }
  }

  /**
   * False if another call has ended the move.
   * @throws MoveError if jobs leave the new queue nevertheless, or if another move to it has begun since
   */
  async #isHeld({ number }: RecordedMove): Promise<boolean> {
    const { each } = await this.#to.meter()
    const open = each.filter(({ paused }) => !paused).length
    const last = await this.#record.read()
    // Without a record, Redis has lost the new queue, or it was obliterated: the move has not ended.
    if (last && last.number !== number) return false
    if (open === 0) return true
    if (last && last.phase !== 'draining') return false
    throw new MoveError(
      this.#to.name,
      'resumed',
      `is not paused in ${countText(open, 'shard')}: expected it to be, until queue "${this.#from.name}" is empty. To ` +
        'continue the move, repeat it',
    )
  }

  /** Each shard is read at one moment. */
  async #look(): Promise<Look> {
    const [state, shards] = await Promise.all([this.#from.meter(), Promise.all(this.#from.each.map(statusOf))])
    const { waiting, delayed, waitingChildren, active } = state
    const sum = (of: (one: QueueStatus) => number) => shards.reduce((total, one) => total + of(one), 0)
    const accepted = sum((one) => one.acceptedTotal)
    this.#acceptedAtFirst ??= accepted
    const ended = sum((one) => one.departedTotal + one.completedKept + one.failedKept)
    return {
      state,
      shards,
      isPaused: state.each.some(({ paused }) => paused),
      isEmpty: waiting + delayed + waitingChildren + active === 0,
      mark: `${accepted} ${ended}`,
    }
  }

  #report(found: Partial<Look> & Pick<MoveProgress, 'phase'> & Partial<MoveProgress>): void {
    const { state, shards = [], phase, schedulers = 0, restMs } = found
    const { waiting = 0, delayed = 0, waitingChildren = 0, active = 0 } = state ?? {}
    const accepted = shards.reduce((sum, { acceptedTotal }) => sum + acceptedTotal, 0)
    const hold = phase === 'draining' ? holdOf(state, shards) : undefined
    const dueMs = shards.flatMap(({ nextDueAt }) => nextDueAt?.getTime() ?? [])
    this.#options.onProgress?.({
      ...{ phase, waiting, delayed, waitingChildren, active, schedulers, hold, restMs },
      arrived: state ? accepted - (this.#acceptedAtFirst ?? accepted) : 0,
      nextDueAt: hold === 'delayed' && dueMs.length > 0 ? new Date(Math.min(...dueMs)) : undefined,
    })
  }

  #late(timeoutMs: number): MoveError {
    return new MoveError(
      this.#from.name,
      'timeout',
      `is not moved in time: expected ${timeoutMs} ms to suffice. Queue "${this.#to.name}" ${this.#newQueue}: repeat the ` +
        'move, and it goes on',
    )
  }

  async #resume({ number, wasPaused }: RecordedMove): Promise<void> {
    const { by, reason } = this.#options
    await this.#time.run(() => this.#record.reach(number, 'resuming'))
    this.#newQueue = 'may be resumed already'
    if (!wasPaused) await this.#time.run(() => this.#to.resume({ by, reason }))
    await this.#time.run(() => this.#record.reach(number, 'done'))
  }

  /** @throws MoveError if it has jobs or workers */
  async #obliterate({ isEmpty, state, shards }: Look): Promise<void> {
    if (!isEmpty) {
      const jobs = countText(state.depth + state.active, 'job')
      throw new MoveError(this.#from.name, 'not empty', `has ${jobs}: expected none before it is removed`)
    }
    const workers = Math.max(...shards.map((shard) => shard.workers.length))
    if (workers > 0) {
      throw new MoveError(
        this.#from.name,
        'workers',
        `has ${countText(workers, 'worker')}: expected none before it is removed, because they would declare it again. ` +
          'Close them, and repeat the move',
      )
    }
    await this.#from.obliterate()
  }
}

/** Undefined if Redis was unavailable, and may be back at the next check. */
async function unlessAway<T>(looking: Promise<T>): Promise<T | undefined> {
  try {
    return await looking
  } catch (error) {
    const cause = error instanceof QueueUnavailableError ? error.cause : error
    if (cause === undefined || (cause instanceof Error && isPassing(cause))) return undefined
    throw error
  }
}

type KnownState = ShardedState & { readonly shape: EffectiveShape }

/** @throws MoveError if no process has declared the queue */
async function stateOf(queue: ShardedQueue): Promise<KnownState> {
  const shape = await queue.getShape()
  if (shape) return { ...(await queue.meter()), shape }
  throw new MoveError(
    queue.name,
    'missing',
    'does not exist: expected a queue with shards that a process has declared with a shape',
  )
}

/** @throws QueueUnavailableError also if it was removed, until a process restores it: this one does, too */
async function statusOf(shard: ShapedQueue): Promise<QueueStatus> {
  const [status] = await (await inspectorOf(shard)).status([shard.name])
  if (status && !status.unread) return status
  throw new QueueUnavailableError(shard.name, 'a shard did not answer', false)
}

function holdOf(state: ShardedState | undefined, shards: readonly QueueStatus[]): MoveHold | undefined {
  if (!state) return 'unavailable'
  if (state.each.some(({ paused, pausedUntil }) => paused || pausedUntil)) return 'paused'
  if (shards.some(({ depth, active, workers }) => depth + active > 0 && workers.length === 0)) return 'workers'
  const { waiting, active, delayed, waitingChildren } = state
  if (active === 0 && waiting > 0 && state.each.every(holdsPausedGroups)) return 'groups'
  if (waiting + active > 0) return undefined
  if (delayed > 0) return 'delayed'
  return waitingChildren > 0 ? 'children' : undefined
}

/** Whether all waiting jobs of a shard belong to paused groups. */
function holdsPausedGroups({ waiting, groups }: ShardedState['each'][number]): boolean {
  return (
    waiting === 0 || (groups !== undefined && groups.paused > 0 && groups.waiting + groups.limited + groups.maxed === 0)
  )
}

/** How long the slowest bucket takes to refill: of the whole queue or of any group, in either queue. */
async function restMsOf(...queues: readonly ShardedQueue[]): Promise<number> {
  const found = queues.map(async (queue) => {
    const shape: Partial<EffectiveShape> = (await queue.getShape()) ?? {}
    const set = queue.each.map(async (shard) => (await inspectorOf(shard)).groupOverrides(shard.name))
    const groups = (await Promise.all(set)).flatMap((overrides) => Object.values(overrides))
    const ofGroups = groups.map((override) => refillMs({ ...shape.groups, ...override }))
    return ofGroups.reduce(
      (longest, ms) => Math.max(longest, ms),
      Math.max(refillMs(shape), refillMs(shape.groups ?? {})),
    )
  })
  return Math.ceil(Math.max(...(await Promise.all(found))))
}

/** A rate of a group that follows the clock may be closed for days: it is full again after a whole week. */
function refillMs({ rate, burst }: { readonly rate?: GroupOverride['rate']; readonly burst?: number | null }): number {
  if (!rate) return 0
  if (isScheduled(rate)) return WEEK_MS
  return ((burst ?? 1) * intervalUs(parseRate(rate))) / 1000
}

async function lettersOf(from: ShardedQueue): Promise<MoveResult['deadLetters']> {
  const found = from.each.map(async (shard) => {
    const inspector = await inspectorOf(shard)
    const { deadLetterQueues, shape } = await statusOf(shard)
    const names = [...new Set([...deadLetterQueues, ...(shape?.overflowTo ? [shape.overflowTo] : [])])]
    const letters = await inspector.status(names)
    return letters.flatMap((status, i) => {
      const queue = names[i] as string
      return status && status.waiting > 0
        ? [{ prefix: shard.opts.prefix as string, queue, letters: status.waiting }]
        : []
    })
  })
  return (await Promise.all(found)).flat()
}
