import { Collector } from '../redis/collector.ts'
import type { Client } from '../redis/commands.ts'
import { type AddCall, fitsBulk } from './add-call.ts'
import { BULK_JOBS, IN_FLIGHT } from './bulk-parts.ts'

/** For fewer jobs, one script costs Redis more than a script for each job. */
const MIN_BATCH = 4

interface Addition {
  readonly client: Client
  readonly call: AddCall
}

/** The two ways to add jobs. */
export interface Admitting {
  one(client: Client, call: AddCall): Promise<unknown>
  /** Each by itself, in one script. @returns for each job BullMQ's reply, or why it was not added */
  each(client: Client, calls: readonly AddCall[]): Promise<readonly unknown[]>
}

/**
 * Sends concurrent adds in one script: while others are in flight, it collects those of one turn of the event loop.
 */
export class AdmitBatch {
  readonly #collector: Collector<Addition, unknown>

  constructor(admitting: Admitting) {
    this.#collector = new Collector({
      one: ({ client, call }) => admitting.one(client, call),
      many: (additions) =>
        admitting.each(
          (additions[0] as Addition).client,
          additions.map(({ call }) => call),
        ),
      // HTTP requests that arrive together run in separate callbacks: setImmediate comes after all of them.
      defer: setImmediate,
      least: MIN_BATCH,
      enough: (jobs) => Math.min(BULK_JOBS, Math.max(MIN_BATCH, Math.ceil(jobs / IN_FLIGHT))),
    })
  }

  add(call: AddCall, client: Client): Promise<unknown> {
    const collects = this.#collector.underWay > 0 && fitsBulk(call)
    return collects ? this.#collector.add({ client, call }) : this.#collector.alone({ client, call })
  }

  /** Sends what is collected now, before a call that must come after it. */
  flush(): void {
    this.#collector.flush()
  }
}
