import { Batch, type BatchClient } from './batch.ts'

/** As in `lua/lib/ageing.lua`: so many priorities are looked at. */
const MOST = 64
/** BullMQ's score of a prioritized job is its priority times this, plus a counter; so is that in the line of a group. */
const BAND = 2 ** 32

/** Jobs that age: those of a sorted set with scores from one on, and those of a wait list. */
export interface AgeingLine {
  readonly set: string
  readonly from: number
  readonly list: string | undefined
}

/** The jobs of one priority, in the order in which they leave. */
interface Level {
  readonly priority: number
  readonly isList: boolean
  readonly length: number
  idAt(batch: Batch, index: number): () => string | undefined
}

/**
 * The order of jobs that age, for users that may only read: the formulas of `lua/lib/ageing.lua`. It takes some round
 * trips for each priority, and as many as a binary search of the longest line needs.
 */
export class AgeingOrder {
  readonly #redis: BatchClient
  readonly #base: string
  readonly #stepUs: number
  readonly #nowUs: number

  constructor(redis: BatchClient, base: string, ageingMs: number, nowUs: number) {
    this.#redis = redis
    this.#base = base
    this.#stepUs = ageingMs * 1000
    this.#nowUs = nowUs
  }

  /**
   * How many jobs leave before a waiting one.
   * @param index its place in the wait list, 0 for the next; undefined for a job of the set
   * @returns undefined where the job is not in that line
   */
  async ahead(
    line: AgeingLine,
    { id, index: listed }: { readonly id: string; readonly index: number | undefined },
  ): Promise<number | undefined> {
    const index = line.list === undefined ? undefined : listed
    const [[sinceUs], score] = await Promise.all([
      this.#since([id]),
      this.#run((batch) => batch.add<string | null>('zscore', line.set, id)),
    ])
    if (index === undefined && score === null) return undefined
    const priority = index === undefined ? Math.floor(Number(score) / BAND) : 0
    const keyUs = (sinceUs as number) + priority * this.#stepUs
    const levels = await this.#levels(line)
    const isOwn = (level: Level) => (index === undefined ? !level.isList && level.priority === priority : level.isList)
    const others = levels.filter((level) => !isOwn(level))
    const before = await this.#before(
      others,
      keyUs,
      (level) => index === undefined && (level.isList || level.priority < priority),
    )
    const same =
      index ?? (await this.#run((batch) => batch.add<number>('zcount', line.set, priority * BAND, `(${score}`)))
    return before.reduce((sum, count) => sum + count, same)
  }

  /** The job of a line that leaves next; undefined where none waits. */
  async first(line: AgeingLine): Promise<string | undefined> {
    const levels = await this.#levels(line)
    const ids = await this.#run((batch) => {
      const answers = levels.map((level) => level.idAt(batch, 0))
      return () => answers.map((answer) => answer())
    })
    const since = await this.#since(ids.map((id) => id ?? ''))
    const keyUs = (i: number) => (since[i] as number) + (levels[i] as Level).priority * this.#stepUs
    // Of equal ones the first leaves, which is of the wait list or of the lowest priority.
    return ids.reduce<{ id: string; us: number } | undefined>((best, id, i) => {
      return id !== undefined && (!best || keyUs(i) < best.us) ? { id, us: keyUs(i) } : best
    }, undefined)?.id
  }

  async #run<T>(ask: (batch: Batch) => () => T): Promise<T> {
    const batch = new Batch(this.#redis)
    const answer = ask(batch)
    await batch.run()
    return answer()
  }

  async #levels({ set, from, list }: AgeingLine): Promise<Level[]> {
    const levels: Level[] = []
    if (list !== undefined) {
      const length = await this.#run((batch) => batch.add<number>('llen', list))
      const idAt = (batch: Batch, index: number) => {
        const id = batch.add<string | null>('lindex', list, -1 - index)
        return () => id() ?? undefined
      }
      levels.push({ priority: 0, isList: true, length, idAt })
    }
    let least = from
    for (let i = 0; i < MOST; i++) {
      const first = await this.#run((batch) =>
        batch.add<string[]>('zrange', set, least, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'),
      )
      const [id, score] = first.flat()
      if (id === undefined) break
      const priority = Math.floor(Number(score) / BAND)
      least = (priority + 1) * BAND
      levels.push(await this.#levelOf(set, priority, id))
    }
    return levels
  }

  async #levelOf(set: string, priority: number, first: string): Promise<Level> {
    const [rank, length] = await this.#run((batch) => {
      const at = batch.add<number | null>('zrank', set, first)
      const count = batch.add<number>('zcount', set, priority * BAND, `(${(priority + 1) * BAND}`)
      return () => [at() ?? 0, count()] as const
    })
    const idAt = (batch: Batch, index: number) => {
      const ids = batch.add<string[]>('zrange', set, rank + index, rank + index)
      return () => ids()[0]
    }
    return { priority, isList: false, length, idAt }
  }

  /** How many jobs of each level leave before a key; all levels are searched in the same round trips. */
  async #before(levels: readonly Level[], keyUs: number, winsTies: (level: Level) => boolean): Promise<number[]> {
    const ranges = levels.map(({ length }) => ({ low: 0, high: length }))
    for (;;) {
      const open = levels.flatMap((level, i) => {
        const range = ranges[i] as { low: number; high: number }
        return range.low < range.high ? [{ level, range, middle: Math.floor((range.low + range.high) / 2) }] : []
      })
      if (open.length === 0) return ranges.map(({ low }) => low)
      const ids = await this.#run((batch) => {
        const answers = open.map(({ level, middle }) => level.idAt(batch, middle))
        return () => answers.map((answer) => answer() ?? '')
      })
      const since = await this.#since(ids)
      for (const [i, { level, range, middle }] of open.entries()) {
        const otherUs = (since[i] as number) + level.priority * this.#stepUs
        if (otherUs < keyUs || (otherUs === keyUs && winsTies(level))) range.low = middle + 1
        else range.high = middle
      }
    }
  }

  /** Since when jobs wait, µs. */
  async #since(ids: readonly string[]): Promise<number[]> {
    const rows = await this.#run((batch) => {
      const fields = ids.map((id) =>
        batch.add<(string | null)[]>('hmget', this.#base + id, 'queuedAt', 'timestamp', 'opts'),
      )
      return () => fields.map((row) => row())
    })
    return rows.map(([queuedAt, timestamp, opts]) => {
      if (queuedAt) return Number(queuedAt)
      // A job that is gone, though its group does not know it yet: none waits behind it.
      if (!timestamp) return 0
      const { delay = 0 } = JSON.parse(opts ?? '{}') as { delay?: number }
      return Math.min(this.#nowUs, (Number(timestamp) + delay) * 1000)
    })
  }
}
