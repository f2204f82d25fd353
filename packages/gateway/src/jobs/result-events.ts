import { EventEmitter, once } from 'node:events'
import { QueueEvents, type QueueEventsOptions } from 'bullmq'

/** How a job ended. */
export type Ending =
  | { readonly state: 'completed'; readonly result: unknown }
  | { readonly state: 'failed'; readonly failedReason: string }

/** Where to read the events of one queue. */
export interface EventSource {
  readonly queueName: string
  readonly options: Pick<QueueEventsOptions, 'connection' | 'prefix'>
  /** Redis's time now. */
  readonly now: () => Promise<Date>
  readonly onError: (error: Error) => void
}

export interface EndingWait {
  readonly waitMs: number
  /** Ends the wait early. */
  readonly signal: AbortSignal
  /** How the job ended, if it has. */
  readonly look: () => Promise<Ending | undefined>
}

/** BullMQ's events of a queue, which can be closed even while Redis is unavailable. */
class StoppableEvents extends QueueEvents {
  /** BullMQ's own close waits for a connection that was never established, or is being re-established. */
  async stop(): Promise<void> {
    this.close().catch(() => {})
    await this.backend.close(true)
  }
}

/** Reads the events of a queue from its creation until it is stopped. */
class Listener {
  /** Rejects if reading cannot begin. */
  readonly ready: Promise<void>
  #events: StoppableEvents | undefined
  #stopped = false

  /** @param onError called with errors after which the reading may have stopped */
  constructor(source: EventSource, onEnding: (id: string, ending: Ending) => void, onError: (error: Error) => void) {
    this.ready = this.#listen(source, onEnding, onError)
  }

  async stop(): Promise<void> {
    this.#stopped = true
    await this.#events?.stop()
  }

  async #listen(
    { queueName, options, now }: EventSource,
    onEnding: (id: string, ending: Ending) => void,
    onError: (error: Error) => void,
  ): Promise<void> {
    // From now on: otherwise reading could begin only after the look at the job, and miss events in between.
    const lastEventId = `${(await now()).getTime() - 1}-0`
    if (this.#stopped) return
    const events = new StoppableEvents(queueName, { ...options, lastEventId })
    this.#events = events
    events.on('completed', ({ jobId, returnvalue }) => onEnding(jobId, { state: 'completed', result: returnvalue }))
    events.on('failed', ({ jobId, failedReason }) => onEnding(jobId, { state: 'failed', failedReason }))
    events.on('error', onError)
    await events.waitUntilReady()
  }
}

/** Reports when jobs of one queue end, from its events. It listens from the first wait on. */
export class ResultEvents {
  readonly #source: EventSource
  /** Emits by its id how a job ended, or nothing to end the waits. */
  readonly #endings = new EventEmitter().setMaxListeners(0)
  #listener: Listener | undefined
  #closed = false

  constructor(source: EventSource) {
    this.#source = source
  }

  /** How a job ends within `waitMs`; undefined if it does not, or if that cannot be known. Never throws. */
  async ending(id: string, { waitMs, signal, look }: EndingWait): Promise<Ending | undefined> {
    if (this.#closed || signal.aborted) return undefined
    const looked = () => look().catch(() => undefined)
    const stopping = new AbortController()
    const stop = () => stopping.abort()
    const timer = setTimeout(stop, waitMs)
    signal.addEventListener('abort', stop)
    const reported = once(this.#endings, id, stopping).then(
      ([ending]) => ending as Ending | undefined,
      () => undefined,
    )
    try {
      // It may have ended before listening began.
      void this.#opened()
        .then(looked, () => undefined)
        .then((ending) => ending && this.#endings.emit(id, ending))
      // While Redis is unreachable, events may be lost.
      return (await reported) ?? (signal.aborted || this.#closed ? undefined : await looked())
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', stop)
    }
  }

  /** Ends all waits. */
  async close(): Promise<void> {
    this.#closed = true
    // `once` listens for errors as well.
    for (const id of this.#endings.eventNames()) if (id !== 'error') this.#endings.emit(id)
    await this.#drop(this.#listener)
  }

  #opened(): Promise<void> {
    this.#listener ??= this.#newListener()
    const listener = this.#listener
    return listener.ready.catch((error: unknown) => {
      if (this.#listener === listener) this.#listener = undefined
      throw error
    })
  }

  #newListener(): Listener {
    const onError = (error: Error) => {
      this.#source.onError(error)
      // It may have stopped reading for good: the next wait opens a new one.
      void this.#drop(listener)
    }
    const listener = new Listener(this.#source, (id, ending) => this.#endings.emit(id, ending), onError)
    return listener
  }

  async #drop(listener: Listener | undefined): Promise<void> {
    if (this.#listener === listener) this.#listener = undefined
    await listener?.stop().catch(() => {})
  }
}
