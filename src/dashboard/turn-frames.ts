import type { Identity } from '../http/door.ts'
import { type EventStream, eventFrame } from './event-stream.ts'
import { type FleetFacts, fleetAnswer } from './fleet-answer.ts'
import type { Fleet } from './fleet-reader.ts'
import type { HistoryTails } from './history-tails.ts'
import { maySee } from './visible.ts'

/** The events of one turn. What several streams are told is made once. */
export class TurnFrames {
  readonly #fleet: Fleet
  readonly #facts: FleetFacts
  readonly #tails: HistoryTails
  readonly #fleetFrames = new Map<string, string>()

  constructor(fleet: Fleet, facts: FleetFacts, tails: HistoryTails) {
    this.#fleet = fleet
    this.#facts = facts
    this.#tails = tails
  }

  /** For one stream; notes in it what it knows then. */
  framesFor(stream: EventStream, identity: Identity | undefined): readonly string[] {
    const fleet = this.#fleetFrame(identity)
    const queue = this.#queueFrame(stream, identity)
    return queue === undefined ? [fleet] : [fleet, queue]
  }

  #fleetFrame(identity: Identity | undefined): string {
    const key = JSON.stringify(identity?.queues ?? null)
    const made = this.#fleetFrames.get(key) ?? eventFrame('fleet', fleetAnswer(this.#fleet, this.#facts, identity))
    this.#fleetFrames.set(key, made)
    return made
  }

  #queueFrame(stream: EventStream, identity: Identity | undefined): string | undefined {
    const status = this.#fleet.queues.find(({ name }) => name === stream.queue)
    if (!status || !maySee(identity, status.name)) return undefined
    stream.lastId ??= `${status.at.getTime()}-0`
    const tail = this.#tails.of(status.name)
    const history = tail?.after(stream.lastId) ?? []
    stream.lastId = history[0]?.id ?? stream.lastId
    return eventFrame('queue', { status, history }, stream.lastId)
  }
}
