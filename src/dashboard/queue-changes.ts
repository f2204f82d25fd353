import { checkDeadLetterQueue } from '../backend/dead-letters.ts'
import type { Identity } from '../http/middleware.ts'
import type { InspectorOptions } from '../inspect/index.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import type { RedriveResult } from '../queue/redrive.ts'
import type { ShapeField, ShapeOverride } from '../shape/shape.ts'
import type { Action } from './action.ts'
import { writingConnection } from './connections.ts'
import { changeJob } from './job-change.ts'
import { DashboardProblem } from './problem-error.ts'
import { checkReach, checkShapeReach } from './visible.ts'

export interface ChangesOptions {
  readonly connection: InspectorOptions['connection']
  readonly prefix: string
  readonly onRedrive: (news: RedriveNews) => void
}

/** The author of a change. */
export interface Changer {
  readonly by: string
  /** undefined where callers are not authenticated. */
  readonly identity: Identity | undefined
}

/** Makes the requested changes. A queue is opened for each change: changes are rare, and nothing stays open. */
export class QueueChanges {
  readonly #options: ChangesOptions
  readonly #redrives: Redrives

  constructor(options: ChangesOptions) {
    this.#options = options
    this.#redrives = new Redrives(options.onRedrive)
  }

  /**
   * @throws InvalidShapeError, InvalidRateError, InvalidGroupError, NoGroupsError, InvalidInputError, LimitConflictError;
   *   QueueFullError; QueueUnavailableError; DashboardProblem, 403 for a change that affects queues outside the token's,
   *   404 and 409 for a job that is not there or in another state
   */
  async make(queueName: string, action: Action, { by, identity }: Changer): Promise<void> {
    if (action.action === 'redrive') {
      checkReach(identity, action.from)
      this.#redrives.start(queueName, action.from, (signal) =>
        this.#with(queueName, (queue) => queue.redrive({ from: action.from, by, reason: action.reason, signal })),
      )
      return
    }
    await this.#with(queueName, async (queue) => {
      if (action.action === 'setShape') checkShapeReach(identity, action.shape, await queue.getShape())
      await change(queue, action, by)
    })
  }

  /** Stops running redrives. */
  async close(): Promise<void> {
    await this.#redrives.close()
  }

  async #with<T>(name: string, use: (queue: ShapedQueue) => Promise<T>): Promise<T> {
    const { connection, prefix } = this.#options
    // Loaded late: callers that only read do not need BullMQ, which takes much memory.
    const { ShapedQueue } = await import('../queue/queue.ts')
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

async function change(queue: ShapedQueue, action: Exclude<Action, { action: 'redrive' }>, by: string): Promise<void> {
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
      return queue.pauseUntil((await queue.meter()).at.getTime() + action.ttlMs, { by, reason })
    case 'resume':
      await queue.clearPause({ by, reason })
      return queue.resume()
    case 'pauseGroup':
      return queue.pauseGroup(action.group, changeOf(by, reason, action.ttlMs))
    case 'resumeGroup':
      return queue.resumeGroup(action.group, { by, reason })
    case 'retryJob':
    case 'removeJob':
    case 'promoteJob':
      return changeJob(queue, action, { by, reason })
  }
}

function changeOf(by: string, reason: string, ttlMs: number | undefined) {
  return { by, reason, ...(ttlMs !== undefined && { ttlMs }) }
}

interface RedriveNews {
  readonly queue: string
  readonly from: string
  readonly result?: RedriveResult
  readonly error?: unknown
}

/** Redrives that run in the background after their request: each waits for places in its queue, possibly for hours. */
class Redrives {
  readonly #running = new Map<string, Promise<void>>()
  readonly #stop = new AbortController()
  readonly #onEnd: (news: RedriveNews) => void

  /** @param onEnd called when a redrive ends, unless {@link close} stopped it */
  constructor(onEnd: (news: RedriveNews) => void) {
    this.#onEnd = onEnd
  }

  /**
   * Starts a redrive.
   * @throws InvalidInputError; DashboardProblem 409 while the same one runs
   */
  start(queue: string, from: string, run: (signal: AbortSignal) => Promise<RedriveResult>): void {
    checkDeadLetterQueue(from, queue)
    const key = JSON.stringify([queue, from])
    if (this.#running.has(key)) throw new DashboardProblem(409, `dead letters of "${from}" are being put back already`)
    const running = run(this.#stop.signal).then(
      (result) => this.#onEnd({ queue, from, result }),
      (error: unknown) => {
        if (!this.#stop.signal.aborted) this.#onEnd({ queue, from, error })
      },
    )
    this.#running.set(
      key,
      running.finally(() => this.#running.delete(key)),
    )
  }

  /** Stops them before their next job. The rest can be redriven later. */
  async close(): Promise<void> {
    this.#stop.abort(new Error('the dashboard is closed'))
    await Promise.all(this.#running.values())
  }
}
