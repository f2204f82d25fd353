import type { Job } from './job.ts'
import type { Departure, ReferenceKeys } from './reference.ts'

/** Jobs of one kind, of which some always wait. */
export interface Source {
  readonly name: string
  readonly group: string
  readonly keys?: Readonly<Record<string, string>>
  readonly cost?: number
  readonly costs?: Readonly<Record<string, number>>
  /** How long a job of it runs, µs, default 0: it ends at once. */
  readonly runsUs?: number
  /** Default 0. */
  readonly fromUs?: number
  /** How many wait, default 3. */
  readonly backlog?: number
}

/** What a run looks at after each call that starts no job. */
export type Look = (nowUs: number, untilUs: number | undefined) => void

/** Works on a model in virtual time, with as many workers as it lets run. */
export class Run {
  readonly #model: ReferenceKeys
  readonly #sources: readonly Source[]
  readonly #waiting = new Map<Source, number>()
  readonly #started = new Map<string, number>()
  readonly #sourceOf = new Map<string, Source>()
  readonly #ends: { readonly atUs: number; readonly id: string }[] = []
  #jobs = 0
  nowUs = 0

  constructor(model: ReferenceKeys, sources: readonly Source[]) {
    this.#model = model
    this.#sources = sources
  }

  /** How many jobs of a source have started. */
  started(name: string): number {
    return this.#started.get(name) ?? 0
  }

  get allStarted(): number {
    return [...this.#started.values()].reduce((sum, count) => sum + count, 0)
  }

  until(endUs: number, look?: Look): this {
    while (this.nowUs <= endUs) {
      this.#feed()
      this.#end()
      const { departures, untilUs } = this.#model.take(this.nowUs)
      for (const departure of departures) this.#start(departure)
      if (departures.length > 0 || untilUs === this.nowUs) continue
      look?.(this.nowUs, untilUs)
      const next = Math.min(untilUs ?? Number.POSITIVE_INFINITY, this.#ends[0]?.atUs ?? Number.POSITIVE_INFINITY)
      const begins = this.#sources.flatMap(({ fromUs = 0 }) => (fromUs > this.nowUs ? [fromUs] : []))
      this.nowUs = Math.min(next, ...begins)
    }
    return this
  }

  #feed(): void {
    for (const source of this.#sources) {
      const { group, keys = {}, cost = 1, costs, fromUs = 0, backlog = 3 } = source
      let waiting = this.#waiting.get(source) ?? 0
      for (; waiting < backlog && fromUs <= this.nowUs; waiting++) {
        this.#jobs += 1
        const job: Omit<Job, 'number' | 'sinceUs'> = {
          ...{ id: `j${this.#jobs}`, group, keys, cost, priority: 0 },
          ...(costs ? { costs } : {}),
        }
        this.#sourceOf.set(job.id, source)
        this.#model.add(job, this.nowUs)
      }
      this.#waiting.set(source, waiting)
    }
  }

  #end(): void {
    while (this.#ends[0] && this.#ends[0].atUs <= this.nowUs) this.#model.finish(this.#ends.shift()!.id, this.nowUs)
  }

  #start({ id, slotUs }: Departure): void {
    const source = this.#sourceOf.get(id) as Source
    this.#sourceOf.delete(id)
    this.#waiting.set(source, (this.#waiting.get(source) as number) - 1)
    this.#started.set(source.name, this.started(source.name) + 1)
    this.#ends.push({ atUs: slotUs + (source.runsUs ?? 0), id })
    this.#ends.sort((a, b) => a.atUs - b.atUs)
  }
}
