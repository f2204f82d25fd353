import type { DeadLetter } from 'sluice'
import type {
  Explanation,
  FailedReasons,
  GroupDetail,
  GroupsView,
  HistoryEntry,
  Inspector,
  JobDetail,
  JobRow,
  JobState,
  LimitValueDetail,
  LimitValuesView,
  QueueStatus,
  Sample,
} from 'sluice/inspect'
import { isPassing, readDeadLetter, withinMs } from 'sluice/internal'
import type { FleetReader } from './fleet-reader.ts'
import { SharedReads } from './shared-reads.ts'

const MAX_AGE_MS = 500
const HISTORY_COUNT = 50
/** For the history of a queue of which a part does not answer, ms. */
const UNREAD_WAIT_MS = 200
/** Queues in which a job is searched for, and those of them that are shown. */
const MAX_SEARCHED = 10_000
const MAX_FOUND = 20
/** Lines of a job's log. */
const LOG_COUNT = 100

/** The requested part of a list. */
export interface Page {
  readonly start: number
  readonly count: number
}

/** Reads one queue; concurrent reads of the same data are shared. */
export class QueueReads {
  readonly #inspector: Inspector
  readonly #fleet: FleetReader
  readonly #shows: { readonly prefix: string; readonly showData: boolean }
  readonly #reads = new SharedReads(MAX_AGE_MS)

  constructor(
    inspector: Inspector,
    fleet: FleetReader,
    shows: { readonly prefix: string; readonly showData: boolean },
  ) {
    this.#inspector = inspector
    this.#fleet = fleet
    this.#shows = shows
  }

  /** undefined where the queue does not exist. Where a part of it does not answer, nothing is known of its history. */
  async news(name: string): Promise<{ status: QueueStatus; history: readonly HistoryEntry[] } | undefined> {
    const reading = this.#read(['history', name], () => this.#inspector.history(name, { count: HISTORY_COUNT }))
    // It is awaited below.
    reading.catch(() => undefined)
    const status = await this.#fleet.status(name)
    if (!status?.unread) return status && { status, history: await reading }
    const known = reading.catch((error: Error) => {
      if (isPassing(error)) return undefined
      throw error
    })
    return { status, history: (await withinMs(UNREAD_WAIT_MS, known)) ?? [] }
  }

  async series(name: string, since: Date | undefined): Promise<{ samples: readonly Sample[] }> {
    // Each page counts back from its own clock: times within the same second are treated alike.
    const sinceS = since && Math.floor(since.getTime() / 1000)
    const options = sinceS === undefined ? {} : { since: new Date(sinceS * 1000) }
    return { samples: await this.#read(['series', name, sinceS], () => this.#inspector.series(name, options)) }
  }

  async jobs(name: string, state: JobState, page: Page) {
    const { showData: data } = this.#shows
    const { start, count } = page
    const [jobs, status] = await Promise.all([
      this.#read(['jobs', name, state, start, count], () => this.#inspector.jobs(name, state, { ...page, data })),
      this.#fleet.status(name),
    ])
    return { jobs, total: totalOf(status && countOf(status, state), page, jobs.length) }
  }

  /** Failed jobs whose reason contains a text. */
  async failedJobs(name: string, failedReason: string, page: Page) {
    const { start, count } = page
    const { jobs, found, isFoundAtLeast } = await this.#read(['failed', name, failedReason, start, count], () =>
      this.#inspector.failedJobs(name, { failedReason, ...page, data: this.#shows.showData }),
    )
    return { jobs, total: found, isTotalAtLeast: isFoundAtLeast }
  }

  failedReasons(name: string): Promise<FailedReasons> {
    return this.#read(['reasons', name], () => this.#inspector.failedReasons(name))
  }

  /** Dead letters of a queue, in the dead letter queue `from`, which may have no shape. */
  async dead(name: string, from: string, page: Page): Promise<{ letters: readonly DeadRow[]; total: number }> {
    const { prefix, showData } = this.#shows
    const { start, count } = page
    const read = () =>
      Promise.all([this.#inspector.jobs(from, 'waiting', { ...page, data: true }), this.#inspector.status([from])])
    const [jobs, [status]] = await this.#read(['dead', from, start, count], read)
    const letters = deadRows(jobs, { prefix, queueName: name }, showData)
    return { letters, total: totalOf(status?.waiting, page, jobs.length) }
  }

  /** The job with this id in each of some queues; of very many only the first queues are searched. */
  async findJob(names: readonly string[], id: string) {
    const searched = names.slice(0, MAX_SEARCHED)
    const found = await this.#read(['find', id, ...searched], () => this.#inspector.queuesWithJob(searched, id))
    const jobs = await Promise.all(
      found.slice(0, MAX_FOUND).map(async (queue) => {
        const job = await this.job(queue, id)
        return job && { queue, id, name: job.name, state: job.state }
      }),
    )
    return { jobs: jobs.filter((job) => job !== undefined), searched: searched.length, total: names.length }
  }

  groups(name: string): Promise<GroupsView | undefined> {
    return this.#read(['groups', name], () => this.#inspector.groups(name))
  }

  group(name: string, id: string): Promise<GroupDetail | undefined> {
    return this.#read(['group', name, id], () => this.#inspector.group(name, id))
  }

  limitValues(name: string): Promise<LimitValuesView | undefined> {
    return this.#read(['limits', name], () => this.#inspector.limitValues(name))
  }

  limitValue(
    name: string,
    limit: string,
    keys: Readonly<Record<string, string>>,
  ): Promise<LimitValueDetail | undefined> {
    const key = JSON.stringify(Object.entries(keys).sort())
    return this.#read(['limit', name, limit, key], () => this.#inspector.limitValue(name, limit, keys))
  }

  job(name: string, id: string): Promise<JobDetail | undefined> {
    const options = { data: this.#shows.showData, logs: LOG_COUNT }
    return this.#read(['job', name, id], () => this.#inspector.job(name, id, options))
  }

  explain(name: string, id: string): Promise<Explanation | undefined> {
    return this.#read(['explain', name, id], () => this.#inspector.explain(name, id))
  }

  /** Called after a change, so that who made it sees it. */
  forget(): void {
    this.#reads.clear()
  }

  #read<T>(key: readonly (string | number | undefined)[], read: () => Promise<T>): Promise<T> {
    return this.#reads.read(JSON.stringify(key), read)
  }
}

/** Exact where the list ends on this page; otherwise from the status. */
function totalOf(counted: number | undefined, { start, count }: Page, found: number): number {
  const seen = start + found
  if (found > 0 && found < count) return seen
  return Math.max(counted ?? 0, found === 0 ? 0 : seen)
}

function countOf(status: QueueStatus, state: JobState): number {
  const { waiting, prioritized, delayed, waitingChildren, active, completedKept, failedKept } = status
  const counts: Readonly<Record<JobState, number>> = {
    ...{ waiting: waiting - prioritized, prioritized, delayed, active },
    ...{ completed: completedKept, failed: failedKept },
    'waiting-children': waitingChildren,
  }
  return counts[state]
}

/** A dead letter in a list. */
export interface DeadRow {
  /** The id of the letter's job, then the id of the job that failed. */
  readonly letterId: string
  readonly id: string
  readonly name: string
  readonly failedReason: string
  readonly attemptsMade: number
  readonly addedAt: Date
  readonly failedAt: Date
  /** How often it was redriven before. */
  readonly redriven: number
  /** Only where data is shown. */
  readonly data?: unknown
  readonly stacktrace?: readonly string[]
}

/** The letters of one queue among jobs: letters of other queues in the same dead letter queue are left out. */
function deadRows(
  jobs: readonly JobRow[],
  of: { readonly prefix: string; readonly queueName: string },
  showData: boolean,
): DeadRow[] {
  return jobs.flatMap((job) => {
    const letter = letterOf(job.data)
    if (letter?.queueName !== of.queueName || letter.prefix !== of.prefix) return []
    return [deadRow(job.id, letter, showData)]
  })
}

function deadRow(letterId: string, letter: DeadLetter, showData: boolean): DeadRow {
  const { id, name, failedReason, attemptsMade, redriven, data, stacktrace } = letter
  return {
    ...{ letterId, id, name, failedReason, attemptsMade, redriven },
    addedAt: new Date(letter.timestamp),
    failedAt: new Date(letter.finishedOn),
    ...(showData && { data, stacktrace }),
  }
}

function letterOf(data: unknown): DeadLetter | undefined {
  return typeof data === 'object' && data !== null ? readDeadLetter(JSON.stringify(data)) : undefined
}
