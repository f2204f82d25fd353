import type { Inspector } from 'sluice/inspect'
import type { Identity } from 'sluice-gateway'
import type { EventStream, Holder } from './event-stream.ts'
import { EventFrame } from './event-stream.ts'
import type { PageTerms } from './fleet-page.ts'
import type { FleetPage, FleetReader } from './fleet-reader.ts'
import { type FleetFacts, fleetAnswer } from './fleet-reader.ts'
import { HistoryTails } from './history-tails.ts'
import { redisTrouble, withinMs } from './problems.ts'
import { maySee } from './visible.ts'

const INTERVAL_MS = 1000
const READ_TIMEOUT_MS = 5000
const MAX_STREAMS = 500

export interface HubOptions {
  readonly inspector: Inspector
  readonly reader: FleetReader
  readonly facts: FleetFacts
  /** Called when reads begin to fail, and when they succeed again. */
  readonly onTurn: (failure: unknown) => void
}

/** Reads once a second for all streams, and not at all while there are none. */
export class EventHub {
  readonly #options: HubOptions
  readonly #tails: HistoryTails
  readonly #streams = new Set<EventStream>()
  #timer: NodeJS.Timeout | undefined
  #turning = false
  #failing = false
  #closed = false

  constructor(options: HubOptions) {
    this.#options = options
    this.#tails = new HistoryTails(options.inspector)
  }

  /** Whether any stream may be opened. */
  get hasRoom(): boolean {
    return !this.#closed && this.#streams.size < MAX_STREAMS
  }

  /**
   * Whether a holder may open another stream: those that a token has, and again those that it has from one address, must
   * be fewer than the free ones. So however many one takes, others find room: a token gets at most half of all streams,
   * one address of it a third.
   */
  hasShareFor({ token, address }: Holder): boolean {
    const ofToken = [...this.#streams].filter(({ holder }) => holder.token === token)
    const ofAddress = ofToken.filter(({ holder }) => holder.address === address)
    const held = ofAddress.length + (token === undefined ? 0 : ofToken.length)
    return held < MAX_STREAMS - this.#streams.size
  }

  /** Sends events to a stream from now on, the first at once. */
  add(stream: EventStream): void {
    if (stream.isClosed) return
    this.#streams.add(stream)
    stream.onClose(() => this.#remove(stream))
    void this.#sendEvents([stream])
    this.#timer ??= setInterval(() => void this.#turn(), INTERVAL_MS)
  }

  close(): void {
    this.#closed = true
    for (const stream of this.#streams) stream.end()
  }

  #remove(stream: EventStream): void {
    this.#streams.delete(stream)
    if (this.#streams.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Skips turns while Redis takes longer than a turn. */
  async #turn(): Promise<void> {
    if (this.#turning) return
    this.#turning = true
    const followed = new Set([...this.#streams].flatMap(({ queue }) => queue ?? []))
    await this.#sendEvents([...this.#streams], () => this.#tails.readNext(followed))
    this.#turning = false
  }

  async #sendEvents(streams: readonly EventStream[], read: () => Promise<void> = async () => {}): Promise<void> {
    const { reader, facts } = this.#options
    const frames = new TurnFrames(reader, facts, this.#tails)
    const sendOne = (stream: EventStream) =>
      sendTo(stream, (identity) => withinMs(READ_TIMEOUT_MS, frames.framesFor(stream, identity)))
    try {
      await withinMs(READ_TIMEOUT_MS, Promise.all([reader.names(), read()]))
      await Promise.all(streams.map(sendOne))
      this.#note(undefined)
    } catch (error) {
      this.#note(error)
      const frame = new EventFrame('unavailable', { at: new Date(), detail: redisTrouble(error) })
      await Promise.all(streams.map((stream) => sendTo(stream, async () => [frame])))
    }
  }

  #note(failure: unknown): void {
    const failing = failure !== undefined
    if (failing !== this.#failing) this.#options.onTurn(failure)
    this.#failing = failing
  }
}

type MakeFrames = (identity: Identity | undefined) => Promise<readonly EventFrame[]>

async function sendTo(stream: EventStream, frames: MakeFrames): Promise<void> {
  const caller = await stream.identify()
  if (!caller) stream.end()
  else if (stream.isReady()) stream.send(await frames(caller.identity))
}

/** The events of one turn. A frame for several streams is built once. */
class TurnFrames {
  readonly #reader: FleetReader
  readonly #facts: FleetFacts
  readonly #tails: HistoryTails
  readonly #fleetFrames = new Map<FleetPage, EventFrame>()

  constructor(reader: FleetReader, facts: FleetFacts, tails: HistoryTails) {
    this.#reader = reader
    this.#facts = facts
    this.#tails = tails
  }

  /** For one stream; records in it what has been sent. */
  async framesFor(stream: EventStream, identity: Identity | undefined): Promise<readonly EventFrame[]> {
    const fleet = stream.fleet ? [await this.#fleetFrame(stream.page, identity)] : []
    const queue = await this.#queueFrame(stream, identity)
    return queue === undefined ? fleet : [...fleet, queue]
  }

  async #fleetFrame(terms: PageTerms, identity: Identity | undefined): Promise<EventFrame> {
    const page = await this.#reader.page(terms, identity)
    const made = this.#fleetFrames.get(page) ?? new EventFrame('fleet', fleetAnswer(page, this.#facts))
    this.#fleetFrames.set(page, made)
    return made
  }

  async #queueFrame(stream: EventStream, identity: Identity | undefined): Promise<EventFrame | undefined> {
    if (stream.queue === undefined) return undefined
    const [redis, status] = await Promise.all([
      this.#reader.redis(identity),
      maySee(identity, stream.queue) ? this.#reader.status(stream.queue) : undefined,
    ])
    if (!status) return new EventFrame('gone', { queue: stream.queue })
    stream.lastId ??= `${status.at.getTime()}-0`
    const tail = this.#tails.of(status.name)
    const history = tail?.after(stream.lastId, stream.changes) ?? []
    stream.changes = tail?.count
    // If a shard's clock is behind, this may go back: after a reconnect the page gets some again, and knows them.
    stream.lastId = history[0]?.id ?? stream.lastId
    return new EventFrame('queue', { status, history, redis }, stream.lastId)
  }
}
