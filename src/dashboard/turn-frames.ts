import type { Identity } from '../http/door.ts'
import { type EventStream, eventFrame } from './event-stream.ts'
import { type FleetFacts, fleetAnswer } from './fleet-answer.ts'
import type { PageTerms } from './fleet-page.ts'
import type { FleetPage, FleetReader } from './fleet-reader.ts'
import type { HistoryTails } from './history-tails.ts'
import { maySee } from './visible.ts'

/** The events of one turn. A frame for several streams is built once. */
export class TurnFrames {
  readonly #reader: FleetReader
  readonly #facts: FleetFacts
  readonly #tails: HistoryTails
  readonly #fleetFrames = new Map<FleetPage, string>()

  constructor(reader: FleetReader, facts: FleetFacts, tails: HistoryTails) {
    this.#reader = reader
    this.#facts = facts
    this.#tails = tails
  }

  /** For one stream; records in it what has been sent. */
  async framesFor(stream: EventStream, identity: Identity | undefined): Promise<readonly string[]> {
    const fleet = await this.#fleetFrame(stream.page, identity)
    const queue = await this.#queueFrame(stream, identity)
    return queue === undefined ? [fleet] : [fleet, queue]
  }

  async #fleetFrame(terms: PageTerms, identity: Identity | undefined): Promise<string> {
    const page = await this.#reader.page(terms, identity)
    const made = this.#fleetFrames.get(page) ?? eventFrame('fleet', fleetAnswer(page, this.#facts))
    this.#fleetFrames.set(page, made)
    return made
  }

  async #queueFrame(stream: EventStream, identity: Identity | undefined): Promise<string | undefined> {
    if (stream.queue === undefined || !maySee(identity, stream.queue)) return undefined
    const status = await this.#reader.status(stream.queue)
    if (!status) return undefined
    stream.lastId ??= `${status.at.getTime()}-0`
    const tail = this.#tails.of(status.name)
    const history = tail?.after(stream.lastId) ?? []
    stream.lastId = history[0]?.id ?? stream.lastId
    return eventFrame('queue', { status, history }, stream.lastId)
  }
}
