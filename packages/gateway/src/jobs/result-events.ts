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

type Settle = (ending: Ending | undefined) => void

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
  readonly #waiting = new Map<string, Set<Settle>>()
  #listener: Listener | undefined
  #closed = false

  constructor(source: EventSource) {
    this.#source = source
  }

  /** How a job ends within `waitMs`; undefined if it does not, or if that cannot be known. Never throws. */
  async ending(id: string, { waitMs, signal, look }: EndingWait): Promise<Ending | undefined> {
    if (this.#closed || signal.aborted) return undefined
    const looked = () => look().catch(() => undefined)
    let settle: Settle = () => {}
    const reported = new Promise<Ending | undefined>((resolve) => {
      settle = resolve
    })
    const stop = () => settle(undefined)
    const timer = setTimeout(stop, waitMs)
    signal.addEventListener('abort', stop)
    this.#enter(id, settle)
    try {
      // It may have ended before listening began.
      void this.#opened()
        .then(looked, () => undefined)
        .then((ending) => ending && settle(ending))
      // While Redis is unreachable, events may be lost.
      return (await reported) ?? (signal.aborted || this.#closed ? undefined : await looked())
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', stop)
      this.#leave(id, settle)
    }
  }

  /** Ends all waits. */
  async close(): Promise<void> {
    this.#closed = true
    for (const waiting of [...this.#waiting.values()]) for (const settle of waiting) settle(undefined)
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
    const listener = new Listener(this.#source, (id, ending) => this.#settle(id, ending), onError)
    return listener
  }

  async #drop(listener: Listener | undefined): Promise<void> {
    if (this.#listener === listener) this.#listener = undefined
    await listener?.stop().catch(() => {})
  }

  #enter(id: string, settle: Settle): void {
    const waiting = this.#waiting.get(id) ?? new Set()
    this.#waiting.set(id, waiting.add(settle))
  }

  #leave(id: string, settle: Settle): void {
    const waiting = this.#waiting.get(id)
    waiting?.delete(settle)
    if (waiting?.size === 0) this.#waiting.delete(id)
  }

  #settle(id: string, ending: Ending): void {
    for (const settle of this.#waiting.get(id) ?? []) settle(ending)
  }
}
