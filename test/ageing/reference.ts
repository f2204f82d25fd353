/** A job of the reference; `at` is since when it waits, µs: undefined where that was not recorded. */
interface Waiting {
  readonly id: string
  readonly priority: number
  readonly dueUs: number
  at: number | undefined
}

/**
 * The order in which the jobs of one line leave: a line of jobs for each priority, as BullMQ has them, and with ageing
 * the first of them with the least (since when it waits + its priority * ageing), else that with the least priority.
 */
export class ReferenceLine {
  ageingMs: number | undefined
  readonly #lines = new Map<number, Waiting[]>()
  #delayed: (Waiting & { readonly order: number; readonly fromUs: number })[] = []
  #orders = 0

  constructor(ageingMs: number | undefined) {
    this.ageingMs = ageingMs
  }

  /** @param at undefined for a job that comes by another way than the library's scripts */
  add(id: string, priority: number, times: { at: number | undefined; dueUs: number }): void {
    const line = this.#lines.get(priority) ?? []
    this.#lines.set(priority, line)
    line.push({ id, priority, at: times.at, dueUs: times.dueUs })
  }

  /**
   * @param dueUs by the job's options
   * @param fromUs when it leaves the delayed ones
   */
  addDelayed(id: string, priority: number, { dueUs, fromUs }: { dueUs: number; fromUs: number }): void {
    this.#orders += 1
    this.#delayed.push({ id, priority, dueUs, fromUs, at: undefined, order: this.#orders })
  }

  promoteDue(nowUs: number): void {
    const due = this.#delayed.filter((job) => job.fromUs <= nowUs)
    this.#delayed = this.#delayed.filter((job) => job.fromUs > nowUs)
    due.sort((one, other) => one.fromUs - other.fromUs || one.order - other.order)
    for (const { id, priority, dueUs } of due) this.add(id, priority, { at: this.arrival(nowUs), dueUs })
  }

  /** By hand. */
  promote(id: string, nowUs: number): void {
    const { priority, dueUs } = this.#delayed.find((job) => job.id === id) as Waiting
    this.#delayed = this.#delayed.filter((job) => job.id !== id)
    this.add(id, priority, { at: this.arrival(nowUs), dueUs })
  }

  remove(id: string): void {
    this.#delayed = this.#delayed.filter((job) => job.id !== id)
    for (const [priority, line] of this.#lines) {
      this.#lines.set(
        priority,
        line.filter((job) => job.id !== id),
      )
    }
  }

  /** The job keeps the time that it has waited, and goes behind the others of its new priority. */
  changePriority(id: string, priority: number): void {
    const job = [...this.#lines.values()].flat().find((waiting) => waiting.id === id)
    if (!job) return
    this.remove(id)
    this.add(id, priority, job)
  }

  get waiting(): readonly string[] {
    return [...this.#lines.values()].flat().map(({ id }) => id)
  }

  get delayed(): readonly string[] {
    return this.#delayed.map(({ id }) => id)
  }

  /** The job that leaves next. Jobs whose time was not recorded get one as soon as they are looked at. */
  next(nowUs: number): string | undefined {
    const { ageingMs } = this
    const firsts = [...this.#lines.values()].flatMap((line) => line[0] ?? [])
    firsts.sort((one, other) => one.priority - other.priority)
    if (ageingMs === undefined) return firsts[0]?.id
    for (const first of firsts) first.at ??= Math.min(nowUs, first.dueUs)
    const key = ({ at, priority }: Waiting) => (at as number) + priority * ageingMs * 1000
    return firsts.toSorted((one, other) => key(one) - key(other))[0]?.id
  }

  /** Since when a job that comes now waits, if that is recorded. */
  arrival(nowUs: number): number | undefined {
    return this.ageingMs === undefined ? undefined : nowUs
  }
}
