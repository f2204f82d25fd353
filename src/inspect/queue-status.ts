import type { HoldCause } from '../departure/departure.ts'
import type { GroupState } from '../queue/groups.ts'
import type { ConcurrencyState, MeterState, RateCause } from '../queue/meter-state.ts'
import type { QueueClient } from '../reports/queue-clients.ts'
import type { EndCounts, ReasonCount } from '../reports/recent-ends.ts'
import type { GroupHolder } from './group-holders.ts'

export { HOLD_CAUSES, type HoldCause } from '../departure/departure.ts'
export type { EndCounts, QueueClient, ReasonCount }

/** What holds the job at the head of the queue. */
export interface Hold {
  readonly cause: HoldCause
  /** The name of the limit, where a limit holds it. */
  readonly limit?: string
  /**
   * The group that holds it, where its own rate, limits, running jobs or pause do, and not those of the queue. Of a queue
   * whose waiting jobs all belong to groups that are held: the one that goes first of those that their rates or limits hold.
   */
  readonly group?: string
  /**
   * Of a limit with `by`, in a queue whose limits have keys: the values that are used up, `group` among them if it counts
   * groups. Then `until` is the earliest.
   */
  readonly keys?: Readonly<Record<string, string>>
  /** Never before the job could have started. */
  readonly since: Date
  /** The slot that the head would have then; undefined where unknown. */
  readonly until?: Date
  /** Where the schedule of the rate, or of the limit, lets nothing leave: until when, and the zone whose clock it follows. */
  readonly closed?: { readonly until: Date; readonly timeZone: string }
}

/** For how long each cause has held the head of the queue so far, ms in total. */
export type HeldMs = Readonly<Record<HoldCause, number>>

/** What workers have reported of the starts of jobs so far. */
export interface StartTotals {
  /** Processors that were called. */
  readonly count: number
  /** Of these, before their slots: must stay 0. */
  readonly early: number
  readonly latenessSumMs: number
  /** Upper bounds (ms, Infinity last) and the starts that were at most that late, but later than the bound before. */
  readonly lateness: readonly (readonly [leMs: number, count: number])[]
  /** First attempts whose wait is known, how long they waited, and how long for each cause. */
  readonly waits: number
  readonly waitSumMs: number
  readonly waitedMs: HeldMs
  readonly wait: readonly (readonly [leMs: number, count: number])[]
}

/** A live worker, by its last report. */
export interface WorkerStatus {
  readonly id: string
  readonly host: string
  readonly pid: number
  /** BullMQ's `name` of the worker, where it has one. */
  readonly name: string | undefined
  readonly seenAt: Date
  readonly startedAt: Date
  readonly concurrency: number
  /** Jobs whose processors run, and fetched jobs that wait in the worker for their slots. */
  readonly running: number
  readonly held: number
  /** Jobs that the worker has started so far. */
  readonly started: number
  /** Starts per second since the report before. */
  readonly ratePerSecond: number
  readonly latenessMaxMs: number
  readonly roundTripMs: number
  /** By how much its starts may be later than it measures; undefined where not reported. */
  readonly clockErrorMs: number | undefined
  /** Utilisation of its event loop, 0 to 1. */
  readonly loopUtilisation: number
  readonly state: 'running' | 'paused' | 'overloaded'
  /** What ended in it in the five minutes before its last report, and the most frequent reasons of attempts that failed. */
  readonly recentEnds: EndCounts
  readonly failureReasons: readonly ReasonCount[]
  /** Redis's id of the connection by which it waits for jobs; undefined where not reported. */
  readonly clientId: number | undefined
  /** The clients that it takes to have started jobs past the meter in the last minute. */
  readonly bypassedBy: readonly QueueClient[]
}

/** What ended in the last five minutes of a queue where too many attempts failed. */
export interface Failing {
  /** Attempts that ended, and those that failed, whether the job was retried or not. */
  readonly attempts: number
  readonly failedAttempts: number
  /** `failedAttempts` of `attempts`, 0.1 to 1. */
  readonly share: number
  /** Jobs that failed for good. */
  readonly failed: number
  /** The most frequent first. */
  readonly reasons: readonly ReasonCount[]
}

/** Starts past the meter: some program takes jobs from the queue without it, so that no rate, limit or turn of groups holds. */
export interface Bypass {
  /** When one was last found, and its job. */
  readonly at: Date
  readonly jobId: string
  /** How many were found per second since they began; undefined until that is known. */
  readonly perSecond: number | undefined
  /** The clients that workers with Sluice take to have started them: empty where none of these may list clients. */
  readonly clients: readonly QueueClient[]
}

/** A queue at one moment, as plain read commands find it. */
export interface QueueFacts extends MeterState {
  readonly name: string
  /**
   * How long the oldest ready job has been ready, ms: more than `headAgeMs` where jobs with a higher priority or newer
   * jobs go first, or where its group is held. Searched at the front of each priority up to 8 and of the lowest one; undefined where none waits.
   */
  readonly oldestAgeMs: number | undefined
  /** When the first delayed job is due, where none waits; undefined where some wait, or none is delayed. */
  readonly nextDueAt: Date | undefined
  /** Accepted jobs, and used slots, since the queue was created. */
  readonly acceptedTotal: number
  readonly departedTotal: number
  /** Of the refused jobs, those that could not have started in time. */
  readonly refusedLateTotal: number
  /** Slots that workers gave back: those that were granted again, and those that were lost. */
  readonly refundedTotal: number
  readonly forfeitedTotal: number
  /**
   * Jobs that completed, jobs that failed for good, and attempts that failed, whether the job was retried or not: as
   * workers with Sluice have reported so far.
   */
  readonly completedTotal: number
  readonly failedTotal: number
  readonly failedAttemptsTotal: number
  /** undefined where fewer than 5 attempts, or less than a tenth, failed in the last five minutes. */
  readonly failing: Failing | undefined
  /** Starts past the meter that were found so far. */
  readonly bypassedTotal: number
  /** undefined where none was found in the last minute. */
  readonly bypass: Bypass | undefined
  /** Of the waiting jobs, those with a priority or a group. */
  readonly prioritized: number
  /** Of the waiting jobs, those with a group; undefined if the shape has no groups. */
  readonly grouped: number | undefined
  /** Jobs that BullMQ keeps: a part of those that have completed and failed. */
  readonly completedKept: number
  readonly failedKept: number
  /** undefined where no job is ready. */
  readonly hold: Hold | undefined
  readonly heldMs: HeldMs
  readonly starts: StartTotals
  readonly workers: readonly WorkerStatus[]
  /** When a job was last refused because all places were taken, to a second; undefined where none ever was. */
  readonly lastRefusedAt: Date | undefined
  /** Of a queue with groups that is full, or nearly: the group with the most waiting jobs; else undefined. */
  readonly largestGroup: { readonly id: string; readonly waiting: number } | undefined
  /** When samples of the series were last deleted because Redis was full; undefined where they never were. */
  readonly samplesDeletedAt: Date | undefined
  /** The queues of dead letters that workers have reported so far, by name. */
  readonly deadLetterQueues: readonly string[]
  /** Its shards, where it is a sharded queue: then all of the above is that of the whole. */
  readonly shards?: readonly ShardStatus[]
  /**
   * What could not be read: shards of a sharded queue, which the sums lack, or its head, without which its shape is
   * unknown; `queue`: the whole of a queue without shards. Where nothing could be, all counts are 0. Absent where all
   * could be.
   */
  readonly unread?: readonly (number | 'head' | 'queue')[]
}

/** How a condition is called, in badges and tables. */
export type ConditionName =
  | 'Unread'
  | 'No worker'
  | 'Bypassed'
  | 'Failing'
  | 'Not taken'
  | 'Full'
  | 'Starving'
  | 'Groups held'
  | 'Paused'
  | 'At concurrency'
  | 'Feedback'
  | 'Override'
  | 'Shadow'
  | 'Off'

/** What is out of the ordinary about a queue. */
export interface Condition {
  readonly name: ConditionName
  /**
   * `error`: jobs do not leave, or leave wrongly. `warning`: a person should look. `note`: it is meant to be so, or ends
   * by itself.
   */
  readonly level: 'error' | 'warning' | 'note'
  /** Why, without a full stop. */
  readonly text: string
  /** The next command or step; '' if there is none. */
  readonly next: string
  /** Greater where a look is needed sooner: twice that of the next kind. Those of several conditions add up. */
  readonly weight: number
}

/** A queue at one moment, and what follows from it. */
export interface QueueStatus extends QueueFacts {
  /** What is out of the ordinary, what needs a look first at the top; empty where all is as usual. */
  readonly conditions: readonly Condition[]
  /** Whether all waiting jobs belong to groups that are held: then it needs no worker. */
  readonly areAllHeld: boolean
}

/** A shard of a sharded queue: what it has of the whole, and what it holds. */
export interface ShardStatus {
  readonly shard: number
  /** By its lease; undefined where jobs are not paced, or not bounded. */
  readonly rate: string | undefined
  readonly capacity: number | undefined
  readonly concurrency: number | undefined
  readonly cause: RateCause
  readonly depth: number
  readonly waiting: number
  readonly delayed: number
  readonly active: number
  readonly hold: Hold | undefined
  /** By BullMQ's pause, or the meter's. */
  readonly paused: boolean
}

/** One point of the series that workers write: totals at a time. */
export interface Sample {
  readonly at: Date
  readonly accepted: number
  readonly departed: number
  readonly refused: number
  readonly dropped: number
  readonly depth: number
  readonly waiting: number
  readonly active: number
  readonly headAgeMs: number | undefined
  /** The rate in force, units of cost per second; undefined where jobs are not paced. */
  readonly ratePerSecond: number | undefined
  readonly starts: number
  readonly latenessSumMs: number
  /** Since the previous sample. */
  readonly latenessMaxMs: number
  readonly completed: number
  /** Jobs that failed for good. */
  readonly failed: number
  /** Attempts that failed, whether the job was retried or not. */
  readonly failedAttempts: number
  /** Starts past the meter. */
  readonly bypassed: number
  readonly heldMs: HeldMs
  /** Whether a pause held at that moment, BullMQ's or the meter's. */
  readonly paused: boolean
}

/** A change of a queue's shape, pause or mode, or an effect of feedback. */
export interface HistoryEntry {
  /** Its id in the stream; ids sort by time. */
  readonly id: string
  readonly at: Date
  readonly kind:
    | 'declared'
    | 'override'
    | 'cleared'
    | 'pause'
    | 'resume'
    | 'feedback'
    | 'restored'
    | 'redrive'
    | 'group'
    | 'limit'
    | 'job'
  readonly by: string
  readonly reason: string
  /** What was changed: fields and values of the shape, or the details of the feedback. */
  readonly change: Readonly<Record<string, unknown>>
  /** The end of an override or a pause. */
  readonly until?: Date
}

/** What `settleCost` changed of what a departure took of a limit. */
export interface SettledLimit {
  /** Units that it gave back. */
  readonly refunded: number
  /** When it charged more, µs on Redis's clock. */
  readonly chargedUs: readonly number[]
}

/** A departure that `shape.audit` recorded. */
export interface AuditEntry {
  readonly jobId: string
  /** µs on Redis's clock. */
  readonly slotUs: number
  /** What it was charged when it left. */
  readonly cost: number
  /** What `settleCost` gave back of it to the rate; undefined where nothing. */
  readonly refunded?: number
  /** The bucket that granted it; undefined where none was enforced. */
  readonly intervalUs?: number
  readonly burst?: number
  /** What it took of each limit when it left, by name. */
  readonly limits: Readonly<Record<string, number>>
  /** The members of pools with which it left, by the names of their limits; undefined where there are none. */
  readonly members?: Readonly<Record<string, string>>
  /** What `settleCost` changed of that, by name; undefined where nothing. */
  readonly limitsSettled?: Readonly<Record<string, SettledLimit>>
  /** The group whose bucket granted it as well; undefined where it has none, or one without a rate. */
  readonly group?: {
    readonly id: string
    readonly intervalUs: number
    readonly burst: number
    /** What `settleCost` gave back to its rate. */
    readonly refunded?: number
  }
  /** What it took of the limits of its group and keys, by name; undefined where there are none. The id is '' without a group. */
  readonly groupLimits?: {
    readonly id: string
    readonly taken: Readonly<Record<string, number>>
    /** By the name of a limit that counts by other keys than the group: their values, each behind its length if there are several. */
    readonly values?: Readonly<Record<string, string>>
    /** As `limitsSettled`. */
    readonly settled?: Readonly<Record<string, SettledLimit>>
  }
  /** When its processor was called, µs on Redis's clock as its worker estimates it; undefined where unreported. */
  readonly startedUs?: number
}

/** The group of a job, and how many of its jobs leave before that one. */
export interface GroupPlace extends GroupState {
  readonly ahead: number
}

/** The lane of a waiting job: the jobs of its group whose keys are equal. */
export interface LanePlace {
  /** Jobs of it that leave before this one. */
  readonly ahead: number
}

/** Why a job has not started, when it may, or what it waited for. */
export interface Explanation {
  readonly queue: string
  /** The shard that the job is in, where the queue is a sharded one: then positions and estimates are those of the shard. */
  readonly shard?: number
  readonly id: string
  readonly name: string
  readonly state: 'waiting' | 'prioritized' | 'delayed' | 'waiting-children' | 'active' | 'completed' | 'failed'
  readonly at: Date
  readonly addedAt: Date
  /** When it could have started: when it was added, its delay ended, or it went back for a retry. */
  readonly readyAt: Date
  /** When it last departed; undefined where it waits. */
  readonly startedAt: Date | undefined
  readonly cost: number
  /** Why it was last throttled, and why an attempt last failed. */
  readonly throttledFor: string | undefined
  readonly failedReason: string | undefined
  /** What holds it, where it is ready; `since` is never before that. */
  readonly hold: Hold | undefined
  /** How many jobs of the queue may run at once, and why; undefined where that is not limited. */
  readonly concurrency: ConcurrencyState | undefined
  /** Its group and its place there; undefined for a job without one, or one that does not wait. */
  readonly group: GroupPlace | undefined
  /** What limits with `by` count it by, besides its group; undefined where it has none. */
  readonly keys: Readonly<Record<string, string>> | undefined
  /** Its place among the jobs of its group with equal keys; undefined where it does not wait, or no limit has keys. */
  readonly lane: LanePlace | undefined
  /** The jobs that hold the places of its group, where all of these are taken; else none. */
  readonly holders: readonly GroupHolder[]
  /** Jobs that leave before it. */
  readonly ahead: number | undefined
  /**
   * Whether there may be more: of a long list only 10,000 jobs at each end are searched, of more than a hundred groups in
   * line only the first hundred are counted, and of a job whose lane waits for a limit only those of its lane. Then `startsAt` is the earliest.
   */
  readonly isAheadAtLeast: boolean
  readonly startsAt: Date | undefined
  /** What the estimate assumes, one sentence each. */
  readonly assumptions: readonly string[]
  /** From `readyAt` to its start, or to now; the parts add up to it. */
  readonly waitedMs: number
  readonly parts: HeldMs
}
