import { shapedQueuesKey } from '../redis/keys.ts'
import { AuditReading } from './audit.ts'
import { Batch, type BatchClient, tolerant } from './batch.ts'
import { type InspectorConnection, readClient } from './client.ts'
import { CrowdReading, compareCrowds, TopList } from './crowd.ts'
import { explain } from './explain.ts'
import { type HistoryOptions, HistoryReading } from './history.ts'
import { askForIds, type JobRow, JobRowReading, type JobState, type JobsOptions } from './jobs.ts'
import { QueueReading } from './queue-reading.ts'
import type { AuditEntry, Explanation, HistoryEntry, QueueStatus, Sample } from './queue-status.ts'
import { redisTime } from './redis-time.ts'
import { type Replication, readReplication } from './replication.ts'
import { RESOLUTIONS, ReachReading, type Resolution, type SeriesOptions, SeriesReading } from './series.ts'

export interface InspectorOptions {
  /** BullMQ's: an ioredis client, which is left open, or the options of one. It may be of a replica, and of a user that only reads. */
  readonly connection: InspectorConnection
  /** Of the queues' keys. Default `bull`. */
  readonly prefix?: string
}

/** Queues that are asked for in one round trip: what is under way for more of them would take much memory. */
const READ_AT_ONCE = 30

/**
 * Reads queues and their meters by plain read commands: nothing is written. Many commands go as one script that runs them,
 * where the user may run scripts. Rejects with what Redis or ioredis said.
 */
export class Inspector {
  readonly #redis: BatchClient
  readonly #isOwn: boolean
  readonly #prefix: string
  /** Whether the user may sort, as the last look found; undefined where that is not known. */
  #canSort: boolean | undefined

  /** @throws InvalidInputError for a client of another library */
  constructor({ connection, prefix = 'bull' }: InspectorOptions) {
    const { redis, isOwn } = readClient(connection)
    this.#redis = redis
    this.#isOwn = isOwn
    this.#prefix = prefix
  }

  /** Names of the queues that have or had a shape, sorted. */
  async queues(): Promise<string[]> {
    const names = await this.#redis.smembers(shapedQueuesKey(this.#base('')))
    return names.sort()
  }

  /**
   * The state of each queue; undefined for one that does not exist. One round trip for each {@link READ_AT_ONCE} of them.
   */
  async status(names: readonly string[]): Promise<(QueueStatus | undefined)[]> {
    const found: (QueueStatus | undefined)[] = []
    for (let from = 0; from < names.length; from += READ_AT_ONCE) {
      found.push(...(await this.#statusOf(names.slice(from, from + READ_AT_ONCE))))
    }
    return found
  }

  /** The same for very many queues, without those that do not exist: of all but {@link READ_AT_ONCE} or two nothing is kept. */
  async *statuses(names: readonly string[]): AsyncGenerator<QueueStatus> {
    const next = (from: number) => {
      const read = this.#statusOf(names.slice(from, from + READ_AT_ONCE))
      // It is awaited later, or not at all.
      read.catch(() => {})
      return read
    }
    let read = next(0)
    for (let from = 0; from < names.length; from += READ_AT_ONCE) {
      const found = await read
      read = next(from + READ_AT_ONCE)
      for (const status of found) if (status) yield status
    }
  }

  /**
   * Of very many queues, the names of those to look at first: those with jobs that wait, and of these the ones whose places
   * are taken to the largest part, then those with the most jobs.
   */
  async fullest(names: readonly string[], count: number): Promise<string[]> {
    const top = new TopList(count, compareCrowds)
    for (let from = 0; from < names.length; from += READ_AT_ONCE) {
      const crowds = await this.#read((batch) =>
        names.slice(from, from + READ_AT_ONCE).map((name) => new CrowdReading(name, this.#base(name), batch)),
      )
      for (const crowd of crowds) top.add(crowd.crowd())
    }
    return top.sorted().map(({ name }) => name)
  }

  async #statusOf(names: readonly string[]): Promise<(QueueStatus | undefined)[]> {
    if (names.length === 0) return []
    const canSort = this.#canSort
    this.#canSort = undefined
    const { time, readings } = await this.#read((batch) => ({
      time: redisTime(batch),
      readings: names.map((name) => new QueueReading(name, this.#base(name), batch, canSort)),
    }))
    const nowUs = time()
    await this.#read((batch) => {
      for (const reading of readings) reading.more(batch, nowUs)
    })
    await this.#read((batch) => {
      for (const reading of readings) reading.last(batch)
    })
    const statuses = readings.map((reading) => (reading.exists ? reading.status(nowUs) : undefined))
    this.#canSort = readings.find(({ sorted }) => sorted !== undefined)?.sorted ?? canSort
    return statuses
  }

  /** How the queue went, oldest first; empty where no worker told. */
  async series(name: string, options: SeriesOptions = {}): Promise<Sample[]> {
    const { since, resolution = since ? await this.#finest(name, since) : RESOLUTIONS[0] } = options
    const list = await this.#read((batch) => new SeriesReading(this.#base(name), resolution, batch))
    return list.samples(since)
  }

  /** What changed the queue's shape, pause and mode, newest first. BullMQ's own pause is, where it was said who set it. */
  async history(name: string, options: HistoryOptions = {}): Promise<HistoryEntry[]> {
    const history = await this.#read((batch) => new HistoryReading(this.#base(name), batch, options))
    return history.entries()
  }

  /**
   * Jobs of a state: first what leaves next, what is due next, what has run longest, or what ended last. One that goes on
   * to another state meanwhile is still told of, one that is gone is not.
   */
  async jobs(name: string, state: JobState, options: JobsOptions = {}): Promise<JobRow[]> {
    const base = this.#base(name)
    const ids = await this.#read((batch) => askForIds(base, state, batch, options))
    const rows = await this.#read((batch) => ids().map((id) => new JobRowReading(base, id, batch, options.data)))
    return rows.flatMap((row) => row.row() ?? [])
  }

  /** Why a job has not started and when it may, or what it waited for; undefined where there is no such job. */
  async explain(name: string, jobId: string): Promise<Explanation | undefined> {
    return explain(this.#redis, name, this.#base(name), jobId)
  }

  /** The departures that `shape.audit` kept, oldest first. */
  async audit(name: string): Promise<AuditEntry[]> {
    const audit = await this.#read((batch) => new AuditReading(this.#base(name), batch))
    return audit.entries()
  }

  /** Whether a master or a replica answers, and how old its answers may be. */
  async replication(): Promise<Replication> {
    const info = await this.#read((batch) => batch.add<string>('info', 'replication'))
    const text = tolerant(info)
    return text === undefined ? { role: 'unknown' } : readReplication(text)
  }

  /** Closes the connection, if it is the inspector's own. */
  async close(): Promise<void> {
    if (this.#isOwn) this.#redis.disconnect()
  }

  /** One round trip for what is asked in it. */
  async #read<T>(ask: (batch: Batch) => T): Promise<T> {
    const batch = new Batch(this.#redis)
    const asked = ask(batch)
    await batch.run()
    return asked
  }

  async #finest(name: string, since: Date): Promise<Resolution> {
    const reach = await this.#read((batch) => new ReachReading(this.#base(name), batch))
    return reach.finest(since)
  }

  #base(name: string): string {
    return `${this.#prefix}:${name}:`
  }
}
