import type { ProducerNews } from './producer.ts'
import { type QueueKind, queueKinds, queueNames } from './queues.ts'
import type { Departure } from './report.ts'

interface Seen {
  accepted: string[]
  refused: number
  departures: Departure[]
}

const halfSecondUs = 500_000

/** Collects the reports of producers and workers during a run. */
export class Observer {
  readonly #seen: Record<QueueKind, Seen> = {
    email: { accepted: [], refused: 0, departures: [] },
    write: { accepted: [], refused: 0, departures: [] },
  }
  /** This machine's clock minus Redis's, by the departure that was read soonest after it happened. */
  #clockOffsetUs = Number.POSITIVE_INFINITY
  #firstUs = Number.POSITIVE_INFINITY

  hear(news: ProducerNews): void {
    for (const kind of queueKinds) {
      this.#seen[kind].accepted.push(...news[kind].accepted)
      this.#seen[kind].refused += news[kind].refused
    }
  }

  /** @param nowUs this machine's clock when the departure was read */
  departed(queueName: string, departure: Departure, nowUs: number): void {
    const kind = queueKinds.find((candidate) => queueNames[candidate] === queueName)
    if (!kind) return
    this.#seen[kind].departures.push(departure)
    this.#clockOffsetUs = Math.min(this.#clockOffsetUs, nowUs - departure.departedAtUs)
    this.#firstUs = Math.min(this.#firstUs, departure.departedAtUs)
  }

  of(kind: QueueKind): Readonly<Seen> {
    return this.#seen[kind]
  }

  /** Departures in each complete half second since the first one of the run. */
  halfSeconds(kind: QueueKind, nowUs: number): number[] {
    if (this.#firstUs === Number.POSITIVE_INFINITY) return []
    const complete = Math.floor((nowUs - this.#clockOffsetUs - this.#firstUs) / halfSecondUs)
    const counts = new Array<number>(Math.max(0, complete)).fill(0)
    for (const { departedAtUs } of this.#seen[kind].departures) {
      const index = Math.floor((departedAtUs - this.#firstUs) / halfSecondUs)
      if (index < counts.length) counts[index]! += 1
    }
    return counts
  }

  /** Increases with every event. */
  get activity(): number {
    return queueKinds.reduce((sum, kind) => {
      const { accepted, refused, departures } = this.#seen[kind]
      return sum + accepted.length + refused + departures.length
    }, 0)
  }
}
