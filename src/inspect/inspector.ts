import { type Cluster, Redis, type RedisOptions } from 'ioredis'
import { checkArgument, checkCallOptions, gotText } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import type { GroupState } from '../queue/groups.ts'
import type { ShapedQueueOptions } from '../queue/options.ts'
import { groupKey, shardOf, slotOfKey } from '../redis/shards.ts'
import type { GroupOverride } from '../shape/groups.ts'
import { askForAudit } from './audit.ts'
import { type Batch, type BatchClient, type Deferred, inBatch, tolerant } from './batch.ts'
import { areAllHeld, conditionsOf } from './conditions.ts'
import { explain } from './explain.ts'
import { compareFillLevels, type FillLevelView, fillLevelOf, TopList } from './fill-level.ts'
import {
  type GroupDetail,
  type GroupsView,
  groupDetail,
  groupOverridesIn,
  groupSettingsOf,
  groupsOf,
} from './groups.ts'
import { askForHistory, type HistoryOptions } from './history.ts'
import { type JobDetail, type JobDetailOptions, jobDetail } from './job-detail.ts'
import { isJob } from './job-reading.ts'
import {
  allReasons,
  askForIds,
  type FailedMatches,
  type FailedReasons,
  JOB_STATES,
  type JobRow,
  type JobState,
  type JobsOptions,
  readReasons,
  readRows,
  searchFailed,
} from './jobs.ts'
import {
  type LimitSettings,
  type LimitValueDetail,
  type LimitValuesView,
  limitSettingsOf,
  limitValueDetail,
  limitValuesOf,
  wholeLimitValues,
} from './limit-values.ts'
import { baseIn, type PartAnswer, PartReads, type QueueParts } from './parts.ts'
import { QueueLists } from './queue-lists.ts'
import { factsIn, QUEUE_ASKED, type QueueView } from './queue-reading.ts'
import type { AuditEntry, Explanation, HistoryEntry, QueueStatus, Sample } from './queue-status.ts'
import { clusterState, infoFields, REDIS_SECTIONS, type RedisState, readRedisState } from './redis-state.ts'
import { askForFinest, askForSeries, RESOLUTIONS, type Resolution, type SeriesOptions } from './series.ts'
import { askForViews, readView, readViews } from './view.ts'
import { allMatches, inTurns, wholeGroups, wholeHistory, wholeOf, wholeSeries } from './whole.ts'

/** As in BullMQ: an ioredis client, or its options. */
export type InspectorConnection = ShapedQueueOptions['connection']

export interface InspectorOptions {
  /**
   * As in BullMQ: an ioredis client, which is not closed, or its options. It may connect to a replica, and use a
   * read-only user.
   */
  readonly connection: InspectorConnection
  /** Prefix of the queues' keys. Default `bull`. */
  readonly prefix?: string
}

/** Number of queues read at once: the pending replies of more would take much memory. */
const READ_AT_ONCE = 30
/**
 * The same for streams of very many queues. If more are decoded at once, they are most of the live heap: V8 may then
 * treat all later ones as long-lived too, and use a third more memory.
 */
const STREAMED_AT_ONCE = 8
/** Queues in which a job is looked up by one round trip, so that Redis serves others in between. */
const LOOKED_UP_AT_ONCE = 500
/**
 * How long the state of queues, and other reads of one queue, wait for a node of a cluster that does not answer, ms.
 */
const STATUS_WAIT_MS = 2000
const PAGE_WAIT_MS = 5000
/** Number of concurrent reads of a stream, so that Redis and the reader do not wait for each other. */
const READS_AHEAD = 4

/**
 * Reads queues and their meters by plain read commands, and by a script that writes nothing (`EVAL_RO`). Rejects with the error of Redis or ioredis, and with ReadTimeoutError if nothing of an answer
 * arrives for 5 s.
 */
export class Inspector {
  readonly #redis: BatchClient
  readonly #isOwn: boolean
  readonly #prefix: string
  readonly #partReads: PartReads
  readonly #pageReads: PartReads
  readonly #lists: QueueLists

  /** @throws InvalidInputError for a client of another library */
  constructor(options: InspectorOptions) {
    checkCallOptions('Inspector', options, ['connection', 'prefix'])
    const { connection, prefix = 'bull' } = options
    checkArgument(typeof prefix === 'string', 'Inspector: prefix', 'a string', prefix)
    const { redis, isOwn } = readClient(connection)
    this.#redis = redis
    this.#isOwn = isOwn
    this.#prefix = prefix
    const nodeOf = (key: string) => nodeWith(redis, key)
    this.#partReads = new PartReads(STATUS_WAIT_MS, nodeOf)
    this.#pageReads = new PartReads(PAGE_WAIT_MS, nodeOf)
    this.#lists = new QueueLists(redis, prefix, this.#partReads)
  }

  /** Names of the queues that have or had a shape, sorted. A sharded queue is one. */
  async queues(): Promise<string[]> {
    return [...(await this.#lists.names())]
  }

  /** Number of shards of a queue; 0: it is not a sharded one. */
  async shardsOf(name: string): Promise<number> {
    checkName('shardsOf', name)
    return (await this.#lists.shardedAmong([name])).get(name)?.shards.length ?? 0
  }

  /**
   * The state of each queue; undefined for one that does not exist. One round trip per {@link READ_AT_ONCE} queues, and
   * one more for sharded queues. If a node of a cluster does not answer, the queues with keys on it are `unread`, or
   * parts of them are, after 2 s.
   */
  async status(names: readonly string[]): Promise<(QueueStatus | undefined)[]> {
    checkNames('status', names)
    const found: (QueueStatus | undefined)[] = []
    for (let from = 0; from < names.length; from += READ_AT_ONCE) {
      found.push(...(await this.#statusOf(names.slice(from, from + READ_AT_ONCE))))
    }
    return found
  }

  /**
   * The same for very many queues, without missing ones: {@link READS_AHEAD} times {@link STREAMED_AT_ONCE} results are
   * in memory at a time.
   */
  async *statuses(names: readonly string[]): AsyncGenerator<QueueStatus> {
    checkNames('statuses', names)
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
   * The names of the most urgent queues, out of very many: queues with waiting jobs, then those with the largest share
   * of their capacity taken, then those with the most jobs.
   */
  async fullest(names: readonly string[], count: number): Promise<string[]> {
    checkNames('fullest', names)
    checkArgument(count !== undefined, 'fullest: count', 'a whole number >= 0', count)
    checkWhole('fullest', 'count', count)
    const top = new TopList(count, compareFillLevels)
    for (let from = 0; from < names.length; from += READ_AT_ONCE) {
      const some = names.slice(from, from + READ_AT_ONCE)
      for (const { name, answers } of await this.#views<FillLevelView>(some, 'crowd', {}))
        top.add(fillLevelOf(name, answers))
    }
    return top.sorted().map(({ name }) => name)
  }

  async #statusOf(names: readonly string[]): Promise<(QueueStatus | undefined)[]> {
    const found = await this.#views<QueueView>(names, 'queue', QUEUE_ASKED)
    // A fresh object each: with very many queues, copies would be most of the work.
    return found.map(({ name, answers }) => {
      const facts = wholeOf(
        name,
        answers.map((answer) => factsIn(name, answer)),
      )
      return facts && Object.assign(facts, { conditions: conditionsOf(facts), areAllHeld: areAllHeld(facts) })
    })
  }

  /**
   * Views of queues: the answers of each queue's parts, the head first, or the only answer of one without shards. They
   * are read {@link READ_AT_ONCE} together or, on a cluster, each by itself, because some may not answer.
   */
  async #views<T>(names: readonly string[], subject: string, asked: object): Promise<QueueAnswers<T>[]> {
    if (this.#redis.isCluster) {
      // The keys that a sharded queue would have without shards may be on an unavailable node.
      const sharded = await this.#lists.shardedAmong(names)
      const read = (base: string) => this.#partReads.read(base, () => readView<T>(this.#redis, base, subject, asked))
      const answers = names.map((name) => Promise.all(this.#basesOf(name, sharded).map(read)))
      return (await Promise.all(answers)).map((found, i) => ({ name: names[i] as string, answers: found }))
    }
    if (names.length === 0) return []
    const own = names.map((name) => this.#base(name))
    const [parts, views] = await this.#read((batch) => {
      const sharded = this.#lists.askForParts(names, batch)
      const found = askForViews<T>(batch, own, [subject, asked])
      return () => [sharded(), found()] as const
    })
    const bases = names.flatMap((name) => (parts.has(name) ? this.#basesOf(name, parts) : []))
    const ofParts = await inSlices(bases, READ_AT_ONCE, (some) => readViews<T>(this.#redis, some, [subject, asked]))
    return views.map((value, i) => {
      const name = names[i] as string
      const found = parts.has(name) ? ofParts.splice(0, this.#basesOf(name, parts).length) : [value]
      return { name, answers: found.map((view) => ({ value: view })) }
    })
  }

  #basesOf(name: string, sharded: ReadonlyMap<string, QueueParts>): readonly string[] {
    const parts = sharded.get(name)
    return parts ? [parts.head, ...parts.shards] : [this.#base(name)]
  }

  /** Samples of the queue, oldest first; empty where no worker has reported. */
  async series(name: string, options: SeriesOptions = {}): Promise<Sample[]> {
    checkOptions('series', options, ['since', 'resolution'])
    const { since: from, resolution: every } = options
    const isDate = from instanceof Date && !Number.isNaN(from.getTime())
    checkArgument(from === undefined || isDate, 'series: since', 'a valid Date', from)
    const isKnown = every === undefined || RESOLUTIONS.includes(every)
    checkArgument(isKnown, 'series: resolution', `one of ${RESOLUTIONS.join(', ')} (s)`, every)
    const read = async (base: string) => {
      const finest = () => (from ? this.#read((batch) => askForFinest(base, from, batch)) : RESOLUTIONS[0])
      const resolution = every ?? (await finest())
      return { resolution, samples: await this.#read((batch) => askForSeries(base, resolution, batch, from)) }
    }
    const { samples } = await this.#each('series', name, read, (found) => {
      const resolution = Math.max(...found.map((one) => one.resolution)) as Resolution
      return {
        resolution,
        samples: wholeSeries(
          found.map((one) => one.samples),
          1000 * resolution,
        ),
      }
    })
    return samples
  }

  /**
   * Changes of the queue's shape, pause and mode, newest first. BullMQ's own pause is included if its author is known.
   */
  async history(name: string, options: HistoryOptions = {}): Promise<HistoryEntry[]> {
    checkOptions('history', options, ['count', 'after'])
    const read = (base: string) => this.#read((batch) => askForHistory(base, batch, options))
    return this.#each('history', name, read, async (shards, { head }) =>
      wholeHistory(await this.#part(head, () => read(head)), shards, options.count),
    )
  }

  /**
   * Jobs of a state, starting with the next to depart, the next due, the longest running, or the last ended; those of
   * shards in turns. A job that moves to another state during the read is still listed; a removed one is not.
   */
  async jobs(name: string, state: JobState, options: JobsOptions = {}): Promise<JobRow[]> {
    checkArgument(JOB_STATES.includes(state), 'jobs: the state', `one of ${JOB_STATES.join(', ')}`, state)
    checkOptions('jobs', options, ['start', 'count', 'data'])
    const read = async (base: string, page: JobsOptions = options) => {
      const ids = await this.#read((batch) => askForIds(base, state, batch, page))
      return ids.map((id) => ({ base, id }))
    }
    const places = await this.#each('jobs', name, read, (found) => inTurns(found, options), untilEnd(options))
    return readRows(this.#redis, places, { data: options.data === true, worker: state === 'active' })
  }

  /** Failed jobs whose reason contains a text, the latest first: of the last 10,000 failed jobs. */
  async failedJobs(name: string, options: JobsOptions & { readonly failedReason: string }): Promise<FailedMatches> {
    checkOptions('failedJobs', options, ['start', 'count', 'data', 'failedReason'])
    const { failedReason } = options
    checkArgument(typeof failedReason === 'string', 'failedJobs: failedReason', 'a string', failedReason)
    const read = async (base: string, { start = 0, count = 50 }: JobsOptions = options): Promise<FailedMatches> => {
      const { ids, isAll } = await searchFailed(this.#redis, base, options.failedReason)
      const places = ids.slice(start, start + count).map((id) => ({ base, id }))
      const jobs = await readRows(this.#redis, places, { data: options.data === true })
      return { jobs, found: ids.length, isFoundAtLeast: !isAll }
    }
    return this.#each('failedJobs', name, read, (found) => allMatches(found, options), untilEnd(options))
  }

  /** Why jobs have failed: the last 1,000 that are kept, grouped by reasons that differ only in numbers and ids. */
  async failedReasons(name: string): Promise<FailedReasons> {
    return this.#each('failedReasons', name, (base) => readReasons(this.#redis, base), allReasons)
  }

  /** One job in full; undefined where there is no such job. */
  async job(name: string, jobId: string, options: JobDetailOptions = {}): Promise<JobDetail | undefined> {
    checkId('job', 'job', jobId)
    checkCallOptions('job', options, ['data', 'logs'])
    checkWhole('job', 'logs', options.logs)
    const read = (base: string) => jobDetail(this.#redis, base, jobId, options)
    return this.#each('job', name, read, (found) => found.find((one) => one !== undefined))
  }

  /** The queues that have a job with this id. For each queue, Redis looks up one key, or one per shard. */
  async queuesWithJob(names: readonly string[], jobId: string): Promise<string[]> {
    checkNames('queuesWithJob', names)
    checkId('queuesWithJob', 'job', jobId)
    const found: string[] = []
    for (let from = 0; from < names.length; from += LOOKED_UP_AT_ONCE) {
      const some = names.slice(from, from + LOOKED_UP_AT_ONCE)
      const sharded = await this.#lists.shardedAmong(some)
      const having = await this.#read((batch) => {
        const basesOf = (name: string) => sharded.get(name)?.shards ?? [this.#base(name)]
        const answers = some.map((name) => basesOf(name).map((base) => isJob(base, jobId, batch)))
        return () => some.filter((_, i) => answers[i]?.some((answer) => answer()))
      })
      found.push(...having)
    }
    return found
  }

  /** Why a job has not started and when it may, or what it waited for; undefined where there is no such job. */
  async explain(name: string, jobId: string): Promise<Explanation | undefined> {
    checkId('explain', 'job', jobId)
    const read = (base: string) => explain(this.#redis, name, base, jobId)
    return this.#each('explain', name, read, (found) => {
      const shard = found.findIndex((one) => one !== undefined)
      const explanation = found[shard]
      return explanation && { ...explanation, shard }
    })
  }

  /**
   * The groups with the longest wait, the groups with the most jobs and the held groups, out of any number.
   * @param options `count`: how many of each; of held ones as many of each kind. Default 10
   * @returns undefined for a queue whose shape has no groups
   */
  async groups(name: string, options: { readonly count?: number } = {}): Promise<GroupsView | undefined> {
    checkOptions('groups', options, ['count'])
    const { count = 10 } = options
    const read = (base: string) => groupsOf(this.#redis, base, count)
    return this.#each('groups', name, read, (found) =>
      wholeGroups(
        found.filter((view) => view !== undefined),
        count,
      ),
    )
  }

  /**
   * One group as it stands, with its next jobs, at most `count`. Default 20
   * @returns undefined for a queue whose shape has no groups
   */
  async group(name: string, id: string, options: { readonly count?: number } = {}): Promise<GroupDetail | undefined> {
    checkId('group', 'group', id)
    checkOptions('group', options, ['count'])
    const { count = 20 } = options
    const read = (base: string) => groupDetail(this.#redis, base, id, count)
    return this.#each('group', name, read, (found) => found[shardOf(groupKey(id), found.length)])
  }

  /** The current settings by `setGroup`, by group ids, without pauses and feedback. */
  async groupOverrides(name: string): Promise<Readonly<Record<string, GroupOverride>>> {
    return groupOverridesIn(await this.#groupSettings('groupOverrides', name))
  }

  /**
   * All current settings of groups, by their ids, in the form of {@link GroupState.overrides}: including pauses and
   * feedback, with author, time, reason and end.
   */
  async groupSettings(name: string): Promise<Readonly<Record<string, GroupState['overrides']>>> {
    return this.#groupSettings('groupSettings', name)
  }

  /**
   * The values of limits with `by` for which most lanes wait, and those with the most running jobs, out of any number;
   * and the members of pools.
   * @param options `count`: how many of each. Default 10
   * @returns undefined for a queue without limits by keys and pools
   */
  async limitValues(name: string, options: { readonly count?: number } = {}): Promise<LimitValuesView | undefined> {
    checkOptions('limitValues', options, ['count'])
    const { count = 10 } = options
    const read = (base: string) => limitValuesOf(this.#redis, base, count)
    return this.#each('limitValues', name, read, (found) => wholeLimitValues(found, count))
  }

  /**
   * One value of a limit with `by`: as from `getLimit`, with the jobs that hold it, at most `count` jobs that wait for
   * it, and its history.
   * @param keys the value of each key that the limit counts by
   * @param options `count`: default 20
   * @returns undefined for a queue without such a limit
   */
  async limitValue(
    name: string,
    limit: string,
    keys: Readonly<Record<string, string>>,
    options: { readonly count?: number } = {},
  ): Promise<LimitValueDetail | undefined> {
    checkArgument(typeof limit === 'string', 'limitValue: the name of a limit', 'a string', limit)
    const areTexts = typeof keys === 'object' && keys && Object.values(keys).every((value) => typeof value === 'string')
    checkArgument(areTexts, 'limitValue: the keys', "an object of strings, such as { model: 'gpt-large' }", keys)
    checkOptions('limitValue', options, ['count'])
    const { count = 20 } = options
    const read = (base: string) => limitValueDetail(this.#redis, base, { name: limit, keys, count })
    return this.#each('limitValue', name, read, (found) => found[shardOf(groupKey(keys.group ?? ''), found.length)])
  }

  /**
   * All current settings of values of limits by `setLimit`: the values of the keys, and the settings in the form of
   * {@link GroupState.overrides}.
   */
  async limitSettings(name: string): Promise<readonly LimitSettings[]> {
    const read = (base: string) => limitSettingsOf(this.#redis, base)
    return this.#each('limitSettings', name, read, (found) => found.flat())
  }

  /**
   * The departures that `shape.audit` recorded, oldest first.
   * @throws InvalidInputError for a sharded queue: each shard has an audit of its own, at its part of the rate
   */
  async audit(name: string): Promise<AuditEntry[]> {
    const read = (base: string) => this.#read((batch) => askForAudit(base, batch))
    return this.#each('audit', name, read, (_, { shards }) => {
      throw new InvalidInputError(
        `queue "${name}" must not be a sharded one: its ${shards.length} shards have an audit each; give ` +
          `the prefix of one, such as ${shards[0]?.slice(0, -name.length - 2)}`,
      )
    })
  }

  /** Redis's own state: its role, version, memory and replicas, and whether it refuses writes. */
  async redisState(): Promise<RedisState> {
    if (this.#redis.isCluster) return clusterState(this.#redis as Cluster)
    const text = await this.#read((batch) => {
      const info = batch.add<string>('info', ...REDIS_SECTIONS)
      return () => tolerant(info)
    })
    return text === undefined ? { role: 'unknown' } : readRedisState(infoFields(text))
  }

  /** Closes the connection, if the inspector opened it. */
  async close(): Promise<void> {
    if (this.#isOwn) this.#redis.disconnect()
  }

  #groupSettings(call: string, name: string): Promise<Readonly<Record<string, GroupState['overrides']>>> {
    const read = (base: string) => groupSettingsOf(this.#redis, base)
    return this.#each(call, name, read, (found) => Object.assign({}, ...found))
  }

  #read<T>(ask: (batch: Batch) => Deferred<T>): Promise<T> {
    return inBatch(this.#redis, ask)
  }

  /**
   * Reads a queue, or the shards of a sharded one. Most are not sharded: the check runs at the same time.
   * @param page the request to each shard
   */
  async #each<T>(
    call: string,
    name: string,
    read: (base: string, page?: JobsOptions) => Promise<T>,
    join: (found: T[], parts: QueueParts) => T | Promise<T>,
    page?: JobsOptions,
  ): Promise<T> {
    checkName(call, name)
    // On a cluster, the keys that a sharded queue would have without shards may be on an unavailable node.
    const early = this.#redis.isCluster ? undefined : read(this.#base(name))
    early?.catch(() => {})
    // Without the answer, a sharded queue would look like one without jobs.
    const parts = (await this.#lists.shardedAmong([name])).get(name)
    if (!parts) return early ?? this.#part(this.#base(name), () => read(this.#base(name)))
    return join(await Promise.all(parts.shards.map((base) => this.#part(base, () => read(base, page)))), parts)
  }

  /** Reads a queue or a part of a sharded one. Rejects if its node does not answer. */
  async #part<T>(base: string, read: () => Promise<T>): Promise<T> {
    if (!this.#redis.isCluster) return read()
    const answer = await this.#pageReads.read(base, read)
    if ('error' in answer) throw answer.error
    return answer.value
  }

  #base(name: string): string {
    return baseIn(this.#prefix, name)
  }
}

/**
 * Uses the given client, or creates one.
 * @throws InvalidInputError for a client of another library
 */
function readClient(connection: InspectorConnection): { readonly redis: BatchClient; readonly isOwn: boolean } {
  if (typeof connection !== 'object' || connection === null) throw unusable(gotText(connection))
  if ('pipeline' in connection && typeof connection.pipeline === 'function') {
    return { redis: connection as unknown as Redis, isOwn: false }
  }
  if (typeof connection.connect === 'function') throw unusable('a client of another library')
  const {
    url,
    skipVersionCheck: _,
    ...options
  } = connection as RedisOptions & { url?: string; skipVersionCheck?: boolean }
  // A read-only user may lack the right to run INFO, which ioredis uses to check that Redis is ready.
  const reading = { enableReadyCheck: false, ...options } as Omit<RedisOptions, 'replyMapping'>
  const redis = url === undefined ? new Redis(reading) : new Redis(url, reading)
  // Each call rejects with its own error.
  redis.on('error', () => {})
  return { redis, isOwn: true }
}

function unusable(came: string): InvalidInputError {
  return new InvalidInputError(`connection must be an ioredis client or its options; got ${came}`)
}

/** The master with a key; the key itself if unknown. */
function nodeWith(redis: BatchClient, key: string): string {
  const nodes = redis.isCluster ? (redis as Partial<Cluster>).slots?.[slotOfKey(key)] : undefined
  return nodes?.[0] ?? key
}

/** The answers of a queue: of its head and its shards or, without shards, of itself alone. */
interface QueueAnswers<T> {
  readonly name: string
  readonly answers: readonly PartAnswer<T | undefined>[]
}

/** Reads slices of a list at the same time. */
async function inSlices<P, T>(places: readonly P[], size: number, read: (some: readonly P[]) => Promise<T[]>) {
  const slices = Array.from({ length: Math.ceil(places.length / size) }, (_, i) =>
    places.slice(i * size, (i + 1) * size),
  )
  return (await Promise.all(slices.map(read))).flat()
}

/** All jobs up to the end of a page: any shard may have all of them. */
function untilEnd({ start = 0, count = 50 }: JobsOptions): JobsOptions {
  return { start: 0, count: start + count }
}

/** Checks arguments of programs without types, before anything is read. All throw InvalidInputError. */

function checkName(call: string, name: unknown): void {
  checkArgument(typeof name === 'string', `${call}: the name of a queue`, 'a string', name)
}

function checkNames(call: string, names: unknown): void {
  const isList = Array.isArray(names) && names.every((name) => typeof name === 'string')
  checkArgument(isList, `${call}: the names of queues`, 'a list of strings', names)
}

function checkId(call: string, what: string, id: unknown): void {
  checkArgument(typeof id === 'string', `${call}: the id of a ${what}`, 'a string', id)
}

/** @param names of its options; `start` and `count` are whole numbers */
function checkOptions(call: string, options: object, names: readonly string[]): void {
  checkCallOptions(call, options, names)
  const { start, count } = options as { readonly start?: unknown; readonly count?: unknown }
  for (const [name, value] of Object.entries({ start, count })) checkWhole(call, name, value)
}

function checkWhole(call: string, name: string, value: unknown): void {
  const isRight = value === undefined || (Number.isSafeInteger(value) && (value as number) >= 0)
  checkArgument(isRight, `${call}: ${name}`, 'a whole number >= 0', value)
}
