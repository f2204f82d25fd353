import { QueueEvents, type QueueEventsOptions } from 'bullmq'

/** How a job ended. */
export type Ending =
  | { readonly state: 'completed'; readonly result: unknown }
  | { readonly state: 'failed'; readonly failedReason: string }

/** Where the events of one queue are read. */
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

type Tell = (ending: Ending | undefined) => void

/** Tells when jobs of one queue end, out of its events. It listens from the first wait on. */
export class ResultEvents {
  readonly #source: EventSource
  readonly #waiting = new Map<string, Set<Tell>>()
  #events: Promise<QueueEvents> | undefined
  #closed = false

  constructor(source: EventSource) {
    this.#source = source
  }

  /** How a job ends within a time; undefined where it does not, or that can not be known. It never throws. */
  async ending(id: string, { waitMs, signal, look }: EndingWait): Promise<Ending | undefined> {
    if (this.#closed || signal.aborted) return undefined
    const looked = () => look().catch(() => undefined)
    let tell: Tell = () => {}
    const told = new Promise<Ending | undefined>((resolve) => {
      tell = resolve
    })
    const stop = () => tell(undefined)
    const timer = setTimeout(stop, waitMs)
    signal.addEventListener('abort', stop)
    this.#enter(id, tell)
    try {
      // It may have ended before anybody listened.
      void this.#opened()
        .then(looked, () => undefined)
        .then((ending) => ending && tell(ending))
      // And events are lost where Redis or the connection was.
      return (await told) ?? (signal.aborted || this.#closed ? undefined : await looked())
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', stop)
      this.#leave(id, tell)
    }
  }

  /** Ends all waits. */
  async close(): Promise<void> {
    this.#closed = true
    for (const tells of [...this.#waiting.values()]) for (const tell of tells) tell(undefined)
    await this.#drop()
  }

  #opened(): Promise<QueueEvents> {
    this.#events ??= this.#open().catch((error: unknown) => {
      this.#events = undefined
      throw error
    })
    return this.#events
  }

  async #open(): Promise<QueueEvents> {
    const { queueName, options, now, onError } = this.#source
    // Not from whenever it begins to listen: between that and a look at the job it would miss what happens.
    const lastEventId = `${(await now()).getTime() - 1}-0`
    const events = new QueueEvents(queueName, { ...options, lastEventId })
    events.on('completed', ({ jobId, returnvalue }) => this.#tell(jobId, { state: 'completed', result: returnvalue }))
    events.on('failed', ({ jobId, failedReason }) => this.#tell(jobId, { state: 'failed', failedReason }))
    events.on('error', (error) => {
      onError(error)
      // It may have stopped reading for good: the next wait opens another one.
      void this.#drop()
    })
    if (this.#closed) await events.close()
    else await events.waitUntilReady()
    return events
  }

  async #drop(): Promise<void> {
    const dropped = this.#events
    this.#events = undefined
    await dropped?.then((events) => events.close()).catch(() => {})
  }

  #enter(id: string, tell: Tell): void {
    const tells = this.#waiting.get(id) ?? new Set()
    this.#waiting.set(id, tells.add(tell))
  }

  #leave(id: string, tell: Tell): void {
    const tells = this.#waiting.get(id)
    tells?.delete(tell)
    if (tells?.size === 0) this.#waiting.delete(id)
  }

  #tell(id: string, ending: Ending): void {
    for (const tell of this.#waiting.get(id) ?? []) tell(ending)
  }
}
