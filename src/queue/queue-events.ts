import {
  type BackendFactory,
  QueueEvents,
  type QueueEventsListener,
  type QueueEventsOptions,
  type RedisQueueBackend,
} from 'bullmq'
import { checkQueueName } from '../call-options.ts'
import { warnUnhandled } from '../redis/unhandled-errors.ts'

/**
 * Events of a whole queue, from every process: BullMQ's, and those of its shape. Redis keeps events as text, so numbers
 * arrive as text too.
 */
// biome-ignore lint/suspicious/noExplicitAny: the default is that of BullMQ's QueueEvents
export interface ShapedQueueEventsListener<ReturnType = any> extends QueueEventsListener<ReturnType> {
  /** `count` jobs from all producers have been refused since the last event; at most one event a second. */
  refused: (args: { count: string; depth: string; capacity: string }, id: string) => void
  /** This waiting job was dropped to make room for a new one. */
  dropped: (args: { jobId: string; overflow: 'drop-oldest' | 'drop-lowest' }, id: string) => void
  /** A job could not start before its `mustStartBefore`. */
  expired: (args: { jobId: string; deadline: string }, id: string) => void
  /** A job was cancelled. `by` is empty if unknown. */
  cancelled: (args: { jobId: string; reason: string; by: string }, id: string) => void
  /** The `FeedbackChange`, as JSON. */
  feedback: (args: { change: string }, id: string) => void
}

/**
 * BullMQ's QueueEvents, with the events of a shaped queue in its types. A QueueEvents emits the same events:
 * `events.on<ShapedQueueEventsListener, 'refused'>('refused', …)`.
 */
// biome-ignore lint/suspicious/noExplicitAny: the default is that of BullMQ's QueueEvents
export class ShapedQueueEvents<ReturnType = any> extends QueueEvents<ReturnType> {
  /** @throws InvalidInputError for a wrong name */
  constructor(name: string, options?: QueueEventsOptions, backendFactory?: BackendFactory<RedisQueueBackend>) {
    checkQueueName(name)
    super(name, options as QueueEventsOptions, backendFactory as never)
  }

  override emit<
    L extends QueueEventsListener<ReturnType> = QueueEventsListener<ReturnType>,
    U extends KeyOf<L> = KeyOf<L>,
  >(event: U, ...args: L[U] extends (...args: infer Args) => void ? Args : never): boolean {
    if (event === 'error' && this.listenerCount('error') === 0) return warnUnhandled(args[0])
    return super.emit(event as never, ...(args as never))
  }

  override on<
    L extends QueueEventsListener<ReturnType> = ShapedQueueEventsListener<ReturnType>,
    U extends KeyOf<L> = KeyOf<L>,
  >(event: U, listener: L[U]): this {
    return super.on<L, U>(event, listener)
  }

  override once<
    L extends QueueEventsListener<ReturnType> = ShapedQueueEventsListener<ReturnType>,
    U extends KeyOf<L> = KeyOf<L>,
  >(event: U, listener: L[U]): this {
    return super.once<L, U>(event, listener)
  }

  override off<
    L extends QueueEventsListener<ReturnType> = ShapedQueueEventsListener<ReturnType>,
    U extends KeyOf<L> = KeyOf<L>,
  >(event: U, listener: L[U]): this {
    return super.off<L, U>(event, listener)
  }
}

type KeyOf<T extends object> = Extract<keyof T, string>
