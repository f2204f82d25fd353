import { type CancelMessage, readCancelMessage } from '../backend/cancellation.ts'
import { OBLITERATED, wakeChannel } from '../redis/keys.ts'
import { type Listening, listenForWake } from '../redis/wake-channel.ts'
import type { AnyWorker } from './events.ts'

/** A worker's handlers of messages to the workers of its queue. */
export interface WakeHost {
  /** Asks for jobs again. */
  wake(): void
  /** A job was cancelled, which may run here. */
  cancel(message: CancelMessage): void
  /** Messages may have been missed. */
  missed(): void
}

/**
 * Changes of a shape are published: workers that sleep until a slot, or because no shape is stored, ask again at once.
 * Cancellations of running jobs are published too.
 */
export class ShapeWake {
  readonly #worker: AnyWorker
  readonly #host: WakeHost
  #started: Promise<void> | undefined
  #listening: Listening | undefined

  constructor(worker: AnyWorker, host: WakeHost) {
    this.#worker = worker
    this.#host = host
  }

  /** As in {@link Listening}; -Infinity before it listens. */
  get receivedUntilMs(): number {
    return this.#listening?.receivedUntilMs() ?? Number.NEGATIVE_INFINITY
  }

  start(): void {
    this.#started ??= this.#listen().catch((error: Error) => {
      if (!this.#worker.closing) this.#worker.emit('error', error)
    })
  }

  stop(): void {
    this.#listening?.stop()
  }

  async #listen(): Promise<void> {
    const { backend, id } = this.#worker
    const client = await backend.client
    if (this.#worker.closing) return
    this.#listening = listenForWake(client, wakeChannel(this.#worker.toKey('')), (message) => {
      const cancelled = readCancelMessage(message)
      if (cancelled) return this.#host.cancel(cancelled)
      if (message === '') this.#host.missed()
      if (message === OBLITERATED) backend.store.forget()
      if (isMeantFor(id, message)) this.#host.wake()
    })
    await this.#listening.subscribed
  }
}

/** A message that names a worker (by its UUID) is for that worker alone. */
export function isMeantFor(workerId: string, message: string): boolean {
  return !message.includes('-') || message === workerId
}
