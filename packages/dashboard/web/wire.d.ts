import type { QueueLimit } from 'sluice'
import type {
  Explanation,
  GroupDetail,
  GroupRow,
  GroupsView,
  HistoryEntry,
  HoldCause,
  JobDetail,
  JobRow,
  LimitValueDetail,
  LimitValueRow,
  LimitValuesView,
  QueueStatus,
  FailedReasons as Reasons,
  Sample,
  ShardStatus,
  WorkerStatus,
} from 'sluice/inspect'
import type { PageTerms as Terms } from '../src/fleet-page.ts'
import type { FleetAnswer } from '../src/fleet-reader.ts'
import type { DeadRow } from '../src/queue-reads.ts'

/** A value after JSON: dates are ISO strings, undefined properties are missing. */
export type Wire<T> = T extends Date
  ? string
  : T extends readonly unknown[]
    ? { readonly [K in keyof T]: Wire<T[K]> }
    : T extends object
      ? { readonly [K in keyof T as undefined extends T[K] ? never : K]: Wire<T[K]> } & {
          readonly [K in keyof T as undefined extends T[K] ? K : never]?: Wire<Exclude<T[K], undefined>>
        }
      : T

export type Queue = Wire<QueueStatus>
export type Worker = Wire<WorkerStatus>
export type Shard = Wire<ShardStatus>
export type Change = Wire<HistoryEntry>
export type Point = Wire<Sample>
export type Explained = Wire<Explanation>
export type { HoldCause }

/** The requested page of very many queues. */
export type PageTerms = Omit<Terms, 'count'>

/** All queues at one moment, or a page of very many. */
export type Fleet = Wire<FleetAnswer>

/** One queue, with the changes since the previous event. */
export interface QueueNews {
  readonly status: Queue
  readonly history: readonly Change[]
  /** Of events. */
  readonly redis?: Fleet['redis']
}

export type Groups = Wire<GroupsView>
export type Group = Wire<GroupRow>
export type GroupInDetail = Wire<GroupDetail>
/** A limit with `by`. */
export type KeyedLimit = Wire<QueueLimit>
export type LimitValues = Wire<LimitValuesView>
export type LimitRow = Wire<LimitValueRow>
export type LimitValue = Wire<LimitValueDetail>
export type Job = Wire<JobRow>
export type FailedReasons = Wire<Reasons>
export type JobInDetail = Wire<JobDetail>
/** A job with a given id, in one queue. */
export interface FoundJob {
  readonly queue: string
  readonly id: string
  readonly name: string
  readonly state: JobInDetail['state']
}
export type Letter = Wire<DeadRow>

/** What the page asks the dashboard for; `name` is that of a queue. */
export interface Api {
  /** @param terms the page to show of very many queues */
  getFleet(terms?: PageTerms): Promise<Fleet>
  /** What is said of the dashboard and of Redis, without any queue. */
  getFacts(): Promise<Fleet>
  getQueue(name: string): Promise<QueueNews>
  getSeries(name: string, since: Date): Promise<{ samples: Point[] }>
  getJobs(name: string, state: string, start: number, size: number): Promise<{ jobs: Job[]; total: number }>
  /** Failed jobs whose reason contains a text. */
  getFailed(name: string, failedReason: string, start: number, size: number): Promise<FailedPage>
  /** Why the jobs that failed last have failed. */
  getFailedReasons(name: string): Promise<FailedReasons>
  /** @param from the dead letter queue */
  getDead(name: string, from: string, start: number, size: number): Promise<{ letters: Letter[]; total: number }>
  getJob(name: string, id: string): Promise<JobInDetail>
  getExplanation(name: string, id: string): Promise<Explained>
  /** The job with this id in each queue that has one. */
  findJob(id: string): Promise<{ jobs: FoundJob[] }>
  getGroups(name: string): Promise<Groups>
  getGroup(name: string, id: string): Promise<GroupInDetail>
  getLimitValues(name: string): Promise<LimitValues>
  getLimitValue(name: string, limit: string, keys: Readonly<Record<string, string>>): Promise<LimitValue>
}

interface FailedPage {
  readonly jobs: Job[]
  readonly total: number
  readonly isTotalAtLeast: boolean
}
