import { Batch, type BatchClient } from './batch.ts'
import { BAND, type PriorityHead, priorityHeads } from './priorities.ts'

/** As in `lua/gate/ageing-open.lua`: so many priorities are looked at. */
const MOST = 64

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
 * The order of jobs that age, for users that may only read: the formulas of `lua/gate/ageing-open.lua`. The first
 * job takes a few round trips, however many priorities there are; a job's place as many more as a binary search of the
 * longest line needs.
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
    const { list } = line
    const [listed, heads] = await Promise.all([
      list === undefined ? null : this.#run((batch) => batch.add<string | null>('lindex', list, -1)),
      this.#heads(line),
    ])
    const firsts = [...(listed === null ? [] : [{ id: listed, priority: 0 }]), ...heads]
    const since = await this.#since(firsts.map(({ id }) => id))
    const keyUs = (i: number) => (since[i] as number) + (firsts[i] as PriorityHead).priority * this.#stepUs
    // Of equal ones the first leaves, which is of the wait list or of the lowest priority.
    const best = firsts.reduce((least, _, i) => (keyUs(i) < keyUs(least) ? i : least), 0)
    return firsts[best]?.id
  }

  async #run<T>(ask: (batch: Batch) => () => T): Promise<T> {
    const batch = new Batch(this.#redis)
    const answer = ask(batch)
    await batch.run()
    return answer()
  }

  #heads({ set, from }: AgeingLine): Promise<PriorityHead[]> {
    return priorityHeads(this.#redis, set, { least: from / BAND, most: MOST })
  }

  async #levels(line: AgeingLine): Promise<Level[]> {
    const { set, list } = line
    const heads = await this.#heads(line)
    return this.#run((batch) => {
      const length = list === undefined ? undefined : batch.add<number>('llen', list)
      const sizes = heads.map(({ id, priority }) => ({
        rank: batch.add<number | null>('zrank', set, id),
        length: batch.add<number>('zcount', set, priority * BAND, `(${(priority + 1) * BAND}`),
      }))
      return () => {
        const listed = list !== undefined && length ? [listLevel(list, length())] : []
        const levels = sizes.map((size, i) =>
          setLevel(set, (heads[i] as PriorityHead).priority, { rank: size.rank() ?? 0, length: size.length() }),
        )
        return [...listed, ...levels]
      }
    })
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

function listLevel(list: string, length: number): Level {
  const idAt = (batch: Batch, index: number) => {
    const id = batch.add<string | null>('lindex', list, -1 - index)
    return () => id() ?? undefined
  }
  return { priority: 0, isList: true, length, idAt }
}

function setLevel(
  set: string,
  priority: number,
  { rank, length }: { readonly rank: number; readonly length: number },
): Level {
  const idAt = (batch: Batch, index: number) => {
    const ids = batch.add<string[]>('zrange', set, rank + index, rank + index)
    return () => ids()[0]
  }
  return { priority, isList: false, length, idAt }
}
