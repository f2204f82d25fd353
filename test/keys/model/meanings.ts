import { Cell, type RateChanges, ratesOf } from './cell.ts'
import type { Job } from './job.ts'
import type { Need } from './lane.ts'
import { cellIdOf, costUnder, lanesBy, partsOf } from './lane-id.ts'
import { type Limit, namesBy, type Shape } from './shape.ts'

/** What follows from the options of a job under a shape. */
export interface Meaning {
  /** Of the id of its lane. */
  readonly parts: readonly string[]
  /** All whose limits it is subject to, also those of which it takes nothing. */
  readonly cells: readonly Cell[]
  readonly needs: readonly Need[]
}

/** All cells of a queue, and what its jobs need of them. */
export class Meanings {
  readonly #cells = new Map<string, Cell>()
  #known = new WeakMap<Job, Meaning>()
  #limits: readonly Limit[]
  /** By the name of a limit. */
  readonly #rateChanges = new Map<string, RateChanges>()
  readonly #lanesBy = new Set<string>()

  constructor({ limits = [] }: Shape) {
    this.#limits = limits
    this.#noteLanes()
  }

  #noteLanes(): void {
    this.#lanesBy.add(JSON.stringify(lanesBy(this.#limits)))
  }

  /** Whether lanes may have jobs that need different cells: they came under other limits. */
  get areMixed(): boolean {
    return this.#lanesBy.size > 1
  }

  get cells(): readonly Cell[] {
    return [...this.#cells.values()]
  }

  /** The cell of a limit that counts by keys, for one value of each. */
  cell(name: string, keys: Readonly<Record<string, string>>): Cell {
    const limit = this.#limits.find((one) => one.name === name) as Limit
    return this.#cellOf(limit, { group: keys.group ?? '', keys } as Job) as Cell
  }

  change({ limits = [] }: Shape, nowUs: number): void {
    for (const limit of limits) {
      const before = this.#limits.find(({ name }) => name === limit.name)
      if (before && ratesOf(before) === ratesOf(limit)) continue
      this.#rateChanges.set(limit.name, [nowUs, this.#rateChanges.get(limit.name)?.[0] ?? 0])
    }
    this.#limits = limits
    for (const cell of this.cells) {
      const limit = limits.find(({ name }) => name === cell.limit.name)
      cell.isCounted = limit !== undefined
      if (limit) cell.follow(limit, this.#rateChanges.get(limit.name))
    }
    this.#known = new WeakMap()
    this.#noteLanes()
  }

  of(job: Job): Meaning {
    const known = this.#known.get(job)
    if (known) return known
    const cells = this.#limits.flatMap((limit) => this.#cellOf(limit, job) ?? [])
    const needs = cells.flatMap((cell) => {
      const cost = costUnder(cell.limit, job)
      return cost > 0 ? [{ cell, cost, tier: job.tier }] : []
    })
    const meaning = { parts: partsOf(job, this.#limits), cells, needs }
    this.#known.set(job, meaning)
    return meaning
  }

  #cellOf(limit: Limit, job: Job): Cell | undefined {
    const id = namesBy(limit).length > 0 ? cellIdOf(limit, job) : undefined
    if (id === undefined) return undefined
    const cell = this.#cells.get(id) ?? new Cell(id, limit, this.#rateChanges.get(limit.name))
    this.#cells.set(id, cell)
    return cell
  }
}
