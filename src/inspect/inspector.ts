import { shapedQueuesKey } from '../redis/keys.ts'
import type { GroupOverride } from '../shape/groups.ts'
import { AuditReading } from './audit.ts'
import { Batch, type BatchClient, tolerant } from './batch.ts'
import { type InspectorConnection, readClient } from './client.ts'
import { CrowdReading, compareCrowds, TopList } from './crowd.ts'
import { explain } from './explain.ts'
import { type GroupDetail, type GroupsView, groupDetail, groupOverridesOf, groupsOf } from './groups.ts'
import { type HistoryOptions, HistoryReading } from './history.ts'
import { type JobDetail, type JobDetailOptions, jobDetail } from './job-detail.ts'
import {
  askForIds,
  type FailedMatches,
  type JobRow,
  JobRowReading,
  type JobState,
  type JobsOptions,
  searchFailed,
} from './jobs.ts'
import { QueueReading } from './queue-reading.ts'
import type { AuditEntry, Explanation, HistoryEntry, QueueStatus, Sample } from './queue-status.ts'
import { redisTime } from './redis-time.ts'
import { type Replication, readReplication } from './replication.ts'
import { RESOLUTIONS, ReachReading, type Resolution, type SeriesOptions, SeriesReading } from './series.ts'

export interface InspectorOptions {
  /**
   * As in BullMQ: an ioredis client, which is not closed, or its options. It may connect to a replica, and use a
   * read-only user.
   */
  readonly connection: InspectorConnection
  /** Prefix of the queues' keys. Default `bull`. */
  readonly prefix?: string
}

/** Queues read in one round trip: the pending replies of more would take much memory. */
const READ_AT_ONCE = 30
/**
 * The same for streams of very many queues. If more are decoded at once, they are most of the live heap: V8 may then
 * treat all later ones as long-lived too, and use a third more memory.
 */
const STREAMED_AT_ONCE = 8
/** Reads of a stream that are under way, so that Redis and the reader do not wait for each other. */
const READS_AHEAD = 4

/**
 * Reads queues and their meters by plain read commands; it writes nothing. Many commands are sent as one script, where
 * the user may run scripts. Rejects with the error of Redis or ioredis.
 */
export class Inspector {
  readonly #redis: BatchClient
  readonly #isOwn: boolean
  readonly #prefix: string
  /** Whether the user may run SORT_RO, by the last read; undefined where unknown. */
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

  /** The state of each queue; undefined for one that does not exist. One round trip per {@link READ_AT_ONCE} queues. */
  async status(names: readonly string[]): Promise<(QueueStatus | undefined)[]> {
    const found: (QueueStatus | undefined)[] = []
    for (let from = 0; from < names.length; from += READ_AT_ONCE) {
      found.push(...(await this.#statusOf(names.slice(from, from + READ_AT_ONCE))))
    }
    return found
  }

  /**
   * The same for very many queues, without those that do not exist: {@link READS_AHEAD} times {@link STREAMED_AT_ONCE}
   * results are in memory at a time.
   */
  async *statuses(names: readonly string[]): AsyncGenerator<QueueStatus> {
    const reads: Promise<(QueueStatus | undefined)[]>[] = []
    let asked = 0
    const readNext = () => {
      if (asked >= names.length) return
      const read = this.#statusOf(names.slice(asked, asked + STREAMED_AT_ONCE))
      // It is awaited later, or never.
      read.catch(() => {})
      reads.push(read)
      asked += STREAMED_AT_ONCE
    }
    for (let i = 0; i < READS_AHEAD; i++) readNext()
    for (let read = reads.shift(); read; read = reads.shift()) {
      const found = await read
      readNext()
      for (const status of found) if (status) yield status
    }
  }

  /**
   * The names of the queues to look at first, out of very many: those with waiting jobs, then those with the largest
   * share of their capacity taken, then those with the most jobs.
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

  /** Samples of the queue, oldest first; empty where no worker has reported. */
  async series(name: string, options: SeriesOptions = {}): Promise<Sample[]> {
    const { since, resolution = since ? await this.#finest(name, since) : RESOLUTIONS[0] } = options
    const list = await this.#read((batch) => new SeriesReading(this.#base(name), resolution, batch))
    return list.samples(since)
  }

  /**
   * Changes of the queue's shape, pause and mode, newest first. BullMQ's own pause is included where its author is
   * known.
   */
  async history(name: string, options: HistoryOptions = {}): Promise<HistoryEntry[]> {
    const history = await this.#read((batch) => new HistoryReading(this.#base(name), batch, options))
    return history.entries()
  }

  /**
   * Jobs of a state, first the one that leaves next, is due next, has run longest, or ended last. A job that moves to
   * another state during the read is still listed; one that is removed is not.
   */
  async jobs(name: string, state: JobState, options: JobsOptions = {}): Promise<JobRow[]> {
    const ids = await this.#read((batch) => askForIds(this.#base(name), state, batch, options))
    return this.#rows(name, ids(), options.data)
  }

  /** Failed jobs whose reason contains a text, those that failed last first: of the last 10,000 that failed. */
  async failedJobs(
    name: string,
    { failedReason, start = 0, count = 50, data }: JobsOptions & { readonly failedReason: string },
  ): Promise<FailedMatches> {
    const { ids, isAll } = await searchFailed(this.#redis, this.#base(name), failedReason)
    const jobs = await this.#rows(name, ids.slice(start, start + count), data)
    return { jobs, found: ids.length, isFoundAtLeast: !isAll }
  }

  async #rows(name: string, ids: readonly string[], withData: boolean | undefined): Promise<JobRow[]> {
    const base = this.#base(name)
    const rows = await this.#read((batch) => ids.map((id) => new JobRowReading(base, id, batch, withData)))
    return rows.flatMap((row) => row.row() ?? [])
  }

  /** One job in full; undefined where there is no such job. */
  async job(name: string, jobId: string, options: JobDetailOptions = {}): Promise<JobDetail | undefined> {
    return jobDetail(this.#redis, this.#base(name), jobId, options)
  }

  /** Why a job has not started and when it may, or what it waited for; undefined where there is no such job. */
  async explain(name: string, jobId: string): Promise<Explanation | undefined> {
    return explain(this.#redis, name, this.#base(name), jobId)
  }

  /**
   * The groups that have waited longest, that have the most jobs and that are held, out of any number.
   * @param count how many of each; of held ones as many of each kind. Default 10
   * @returns undefined for a queue whose shape has no groups
   */
  async groups(name: string, { count = 10 }: { readonly count?: number } = {}): Promise<GroupsView | undefined> {
    return groupsOf(this.#redis, this.#base(name), count)
  }

  /**
   * One group as it stands, with its next jobs, at most `count`. Default 20
   * @returns undefined for a queue whose shape has no groups
   */
  async group(
    name: string,
    id: string,
    { count = 20 }: { readonly count?: number } = {},
  ): Promise<GroupDetail | undefined> {
    return groupDetail(this.#redis, this.#base(name), id, count)
  }

  /** What `setGroup` has set for groups and is in force, by their ids. Pauses and feedback are not among it. */
  async groupOverrides(name: string): Promise<Readonly<Record<string, GroupOverride>>> {
    return groupOverridesOf(this.#redis, this.#base(name))
  }

  /** The departures that `shape.audit` recorded, oldest first. */
  async audit(name: string): Promise<AuditEntry[]> {
    const audit = await this.#read((batch) => new AuditReading(this.#base(name), batch))
    return audit.entries()
  }

  /** Whether a master or a replica answers, and how old its data may be. */
  async replication(): Promise<Replication> {
    const info = await this.#read((batch) => batch.add<string>('info', 'replication'))
    const text = tolerant(info)
    return text === undefined ? { role: 'unknown' } : readReplication(text)
  }

  /** Closes the connection, if the inspector opened it. */
  async close(): Promise<void> {
    if (this.#isOwn) this.#redis.disconnect()
  }

  /** One round trip for all that `ask` adds to the batch. */
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
