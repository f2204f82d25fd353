import type { Identity } from '../http/door.ts'
import type { InspectorOptions } from '../inspect/index.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import type { ShapeField, ShapeOverride } from '../shape/shape.ts'
import type { Action } from './action.ts'
import { writingConnection } from './connections.ts'
import { type RedriveNews, Redrives } from './redrives.ts'
import { checkReach, checkShapeReach } from './visible.ts'

export interface ChangesOptions {
  readonly connection: InspectorOptions['connection']
  readonly prefix: string
  readonly onRedrive: (news: RedriveNews) => void
}

/** Who makes a change. */
export interface Changer {
  /** As the history names him. */
  readonly by: string
  /** undefined where nobody is asked who he is. */
  readonly identity: Identity | undefined
}

/** Makes the changes that are asked for. A queue is opened for each of them: there are few, and then nothing stays open. */
export class QueueChanges {
  readonly #options: ChangesOptions
  readonly #redrives: Redrives

  constructor(options: ChangesOptions) {
    this.#options = options
    this.#redrives = new Redrives(options.onRedrive)
  }

  /**
   * @throws InvalidShapeError, InvalidRateError, InvalidInputError, LimitConflictError; QueueUnavailableError;
   *   DashboardProblem, 403 for what reaches past the queues of a token
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

  /** Stops what runs. */
  async close(): Promise<void> {
    await this.#redrives.close()
  }

  async #with<T>(name: string, use: (queue: ShapedQueue) => Promise<T>): Promise<T> {
    const { connection, prefix } = this.#options
    // Loaded late: who only looks needs no BullMQ, which takes much memory.
    const { ShapedQueue } = await import('../queue/queue.ts')
    const queue = new ShapedQueue(name, { connection: writingConnection(connection), prefix, skipMetasUpdate: true })
    // What is wrong with the connection is told by the call that needs it.
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
      return queue.clearShape(...((action.fields ?? []) as ShapeField[]), { by, reason })
    case 'pause':
      if (action.ttlMs === undefined) return queue.pause({ by, reason })
      return queue.pauseUntil((await queue.meter()).at.getTime() + action.ttlMs, reason, by)
    case 'resume':
      await queue.clearPause({ by, reason })
      return queue.resume()
  }
}

function changeOf(by: string, reason: string, ttlMs: number | undefined) {
  return { by, reason, ...(ttlMs !== undefined && { ttlMs }) }
}
