import { workerOfLock } from '../redis/ids.ts'
import type { Batch, Deferred } from './batch.ts'
import { parsedRow } from './worker-rows.ts'

/** The worker that runs a job, or ran it last: by the name that BullMQ stores, otherwise by its lock. */
export class JobWorkerReading {
  readonly #base: string
  readonly #name: Deferred<string | null>
  readonly #lock: Deferred<string | null>
  #row: Deferred<string | null> | undefined

  constructor(base: string, id: string, batch: Batch) {
    this.#base = base
    this.#name = batch.add('hget', base + id, 'pb')
    this.#lock = batch.add('get', `${base}${id}:lock`)
  }

  /** Asks for the report of the worker that has the lock. */
  more(batch: Batch): void {
    const id = workerOfLock(this.#lock())
    if (id) this.#row = batch.add('hget', `${this.#base}meta:workers`, id)
  }

  /** `mailer · host-a · 4711`, as far as known: its name, host and process. */
  worker(): string | undefined {
    const row = parsedRow(this.#row?.() ?? '')
    const name = this.#name() ?? undefined
    if (!row) return name
    return [name, row.host, row.pid].filter(Boolean).join(' · ')
  }
}
