import { DatabaseError } from 'pg'
import type { Write, WriteResult } from './ledger.ts'

export interface BatchOptions {
  /** Maximum number of writes in one statement. */
  readonly rows: number
  /** How long the first of them waits for others, ms. */
  readonly waitMs: number
}

/** Runs several writes of one statement together, or one write alone. */
export interface BatchRunner {
  together(writes: readonly Write[]): Promise<readonly WriteResult[]>
  alone(write: Write): Promise<WriteResult>
}

interface Waiting {
  readonly write: Write
  readonly resolve: (result: WriteResult | Promise<WriteResult>) => void
  readonly reject: (error: unknown) => void
}

/**
 * Gathers concurrent writes of one statement into one batch. Each write has its own result: when PostgreSQL refuses a
 * batch because of its data, each of its writes runs alone, so that only the invalid ones fail.
 */
export class Batches {
  readonly #options: BatchOptions
  readonly #runner: BatchRunner
  readonly #waiting = new Map<string, { readonly list: Waiting[]; readonly timer: NodeJS.Timeout }>()

  constructor(options: BatchOptions, runner: BatchRunner) {
    this.#options = options
    this.#runner = runner
  }

  run(write: Write): Promise<WriteResult> {
    if (this.#options.rows === 1 || write.statement.batchSql === undefined) return this.#runner.alone(write)
    return new Promise((resolve, reject) => {
      const { name } = write.statement
      const batch = this.#waiting.get(name) ?? this.#open(name)
      batch.list.push({ write, resolve, reject })
      if (batch.list.length === this.#options.rows) this.#send(name)
    })
  }

  #open(name: string) {
    const batch = { list: [], timer: setTimeout(() => this.#send(name), this.#options.waitMs) }
    this.#waiting.set(name, batch)
    return batch
  }

  #send(name: string): void {
    const batch = this.#waiting.get(name)
    if (!batch) return
    clearTimeout(batch.timer)
    this.#waiting.delete(name)
    void this.#write(batch.list)
  }

  async #write(list: readonly Waiting[]): Promise<void> {
    const sorted = list.toSorted((a, b) => (a.write.entry.effectId < b.write.entry.effectId ? -1 : 1))
    try {
      const results = await this.#runner.together(sorted.map(({ write }) => write))
      for (const [i, { resolve }] of sorted.entries()) resolve(results[i] as WriteResult)
    } catch (error) {
      const aboutData = error instanceof DatabaseError && /^2[23]/.test(error.code ?? '')
      for (const { write, resolve, reject } of sorted) {
        if (aboutData) resolve(this.#runner.alone(write))
        else reject(error)
      }
    }
  }
}
