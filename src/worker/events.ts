import { Worker } from 'bullmq'
import type { ShapedBackend } from '../backend/backend.ts'
import { warnUnhandled } from '../redis/unhandled-errors.ts'
import type { ShapedWorkerListener } from './options.ts'

// biome-ignore lint/suspicious/noExplicitAny: of jobs of any kind
export type AnyWorker = EventfulWorker<any, any, any>

/** BullMQ's worker with the events of a ShapedWorker. Its generics are Worker's, in Worker's order. */
export abstract class EventfulWorker<D, R, N extends string> extends Worker<D, R, N, ShapedBackend> {
  override on<U extends keyof ShapedWorkerListener<D, R, N>>(
    event: U,
    listener: ShapedWorkerListener<D, R, N>[U],
  ): this {
    return super.on(event as never, listener as never)
  }

  override once<U extends keyof ShapedWorkerListener<D, R, N>>(
    event: U,
    listener: ShapedWorkerListener<D, R, N>[U],
  ): this {
    return super.once(event as never, listener as never)
  }

  override off<U extends keyof ShapedWorkerListener<D, R, N>>(
    event: U,
    listener: ShapedWorkerListener<D, R, N>[U],
  ): this {
    return super.off(event as never, listener as never)
  }

  override emit<U extends keyof ShapedWorkerListener<D, R, N>>(
    event: U,
    ...args: Parameters<ShapedWorkerListener<D, R, N>[U]>
  ): boolean {
    if (event === 'error' && this.listenerCount('error') === 0) return warnUnhandled(args[0])
    return super.emit(event as never, ...(args as never))
  }
}
