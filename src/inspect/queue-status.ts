import type { HoldCause } from '../departure/departure.ts'
import type { LimitWire } from '../limits/definition.ts'
import type { GroupState } from '../queue/groups.ts'
import type { ConcurrencyState, MeterState, RateCause } from '../queue/meter-state.ts'
import type { QueueClient } from '../reports/queue-clients.ts'
import type { EndCounts, ReasonCount } from '../reports/recent-ends.ts'
import type { HeldMs } from '../reports/series-sample.ts'
import type { GroupHolder } from './group-holders.ts'

export { HOLD_CAUSES, type HoldCause } from '../departure/departure.ts'
export type { Sample } from '../reports/series-sample.ts'
export type { EndCounts, HeldMs, QueueClient, ReasonCount }

/** A limit by keys that holds a job for less time than another one. */
export interface OtherHold {
  readonly limit: string
  readonly keys: Readonly<Record<string, string>>
  readonly until?: Date
}

/** What holds the job at the head of the queue. */
export interface Hold {
  readonly cause: HoldCause
  /** The name of the limit, if a limit holds it. */
  readonly limit?: string
  /**
   * The group that holds it, if its own rate, limits, running jobs or pause do, and not the queue's. If all waiting
   * jobs belong to held groups: the first of the groups that their rates or limits hold.
   */
  readonly group?: string
  /**
   * For a limit with `by`, in a queue whose limits have keys: the used-up values, including `group` if it counts
   * groups. Then `until` is the earliest.
   */
  readonly keys?: Readonly<Record<string, string>>
  /** Other limits by keys that hold it too, for less time, the last first; `until` is undefined where unknown. */
  readonly others?: readonly OtherHold[]
  /** Never before the job could have started. */
  readonly since: Date
  /** The slot that the head would have then; undefined if unknown. */
  readonly until?: Date
  /** If the schedule of the rate, or of the limit, lets nothing depart: until when, and its time zone. */
  readonly closed?: { readonly until: Date; readonly timeZone: string }
}

/** The starts of jobs that workers have reported so far. */
export interface StartTotals {
  /** Number of processor calls. */
  readonly count: number
  /** Starts before their slots: must stay 0. */
  readonly early: number
  readonly latenessSumMs: number
  /** Upper bounds (ms, Infinity last) and the starts that were at most that late, but later than the previous bound. */
  readonly lateness: readonly (readonly [leMs: number, count: number])[]
  /** First attempts with a known wait, their total wait, and the wait for each cause. */
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
  /** BullMQ's `name` of the worker, if it has one. */
  readonly name: string | undefined
  readonly seenAt: Date
  readonly startedAt: Date
  readonly concurrency: number
  /** Running jobs, and fetched jobs that wait in the worker for their slots. */
  readonly running: number
  readonly held: number
  /** Jobs that the worker has started so far. */
  readonly started: number
  /** Starts per second since the previous report. */
  readonly ratePerSecond: number
  readonly latenessMaxMs: number
  readonly roundTripMs: number
  /** By how much its starts may be later than it measures; undefined if not reported. */
  readonly clockErrorMs: number | undefined
  /** Utilisation of its event loop, 0 to 1. */
  readonly loopUtilisation: number
  readonly state: 'running' | 'paused' | 'overloaded'
  /** Ends in the five minutes before its last report, and the most frequent reasons of failed attempts. */
  readonly recentEnds: EndCounts
  readonly failureReasons: readonly ReasonCount[]
  /** Redis's id of the connection by which it waits for jobs; undefined if not reported. */
  readonly clientId: number | undefined
  /** The clients that it suspects of starting jobs past the meter in the last minute. */
  readonly bypassedBy: readonly QueueClient[]
}

/** Ends in the last five minutes of a queue with too many failed attempts. */
export interface Failing {
  /** Ended attempts, and failed ones, whether the job was retried or not. */
  readonly attempts: number
  readonly failedAttempts: number
  /** `failedAttempts` of `attempts`, 0.1 to 1. */
  readonly share: number
  /** Jobs that failed permanently. */
  readonly failed: number
  /** The most frequent first. */
  readonly reasons: readonly ReasonCount[]
}

/**
 * Starts past the meter: some program takes jobs from the queue without it, so that no rate, limit or turn of groups
 * applies.
 */
export interface Bypass {
  /** When one was last found, and its job. */
  readonly at: Date
  readonly jobId: string
  /** Number found per second since they began; undefined until known. */
  readonly perSecond: number | undefined
  /** The clients that workers with Sluice suspect of starting them: empty if none of these may list clients. */
  readonly clients: readonly QueueClient[]
}

/** A queue at one moment, as plain read commands find it. */
export interface QueueFacts extends MeterState {
  readonly name: string
  /**
   * How long the oldest ready job has been ready, ms: more than `headAgeMs` if jobs with a higher priority or newer
   * jobs go first, or if its group is held. Searched at the front of each priority up to 8 and of the lowest one;
   * undefined if none waits.
   */
  readonly oldestAgeMs: number | undefined
  /** When the first delayed job is due, if none waits; undefined if some wait, or none is delayed. */
  readonly nextDueAt: Date | undefined
  /** Accepted jobs, and used slots, since the queue was created. */
  readonly acceptedTotal: number
  readonly departedTotal: number
  /** Refused jobs that could not have started in time. */
  readonly refusedLateTotal: number
  /** Slots that workers gave back: the ones granted again, and the lost ones. */
  readonly refundedTotal: number
  readonly forfeitedTotal: number
  /**
   * Completed jobs, permanently failed jobs, and failed attempts, whether the job was retried or not: as workers with
   * Sluice have reported so far.
   */
  readonly completedTotal: number
  readonly failedTotal: number
  readonly failedAttemptsTotal: number
  /** undefined if fewer than 5 attempts, or less than a tenth, failed in the last five minutes. */
  readonly failing: Failing | undefined
  /** Starts past the meter that were found so far. */
  readonly bypassedTotal: number
  /** undefined if none was found in the last minute. */
  readonly bypass: Bypass | undefined
  /** Waiting jobs with a priority or a group. */
  readonly prioritized: number
  /** Waiting jobs with a group; undefined if the shape has no groups. */
  readonly grouped: number | undefined
  /** Ended jobs that BullMQ keeps: a part of the completed and failed ones. */
  readonly completedKept: number
  readonly failedKept: number
  /** undefined where no job is ready. */
  readonly hold: Hold | undefined
  readonly heldMs: HeldMs
  readonly starts: StartTotals
  readonly workers: readonly WorkerStatus[]
  /** When a job was last refused because all places were taken, to a second; undefined if none ever was. */
  readonly lastRefusedAt: Date | undefined
  /** The group with the most waiting jobs, in a queue with groups that is full, or nearly; otherwise undefined. */
  readonly largestGroup: { readonly id: string; readonly waiting: number } | undefined
  /** When samples of the series were last deleted because Redis was full; undefined if they never were. */
  readonly samplesDeletedAt: Date | undefined
  /** The queues of dead letters that workers have reported so far, by name. */
  readonly deadLetterQueues: readonly string[]
  /** The shards of a sharded queue: then all fields above belong to the whole queue. */
  readonly shards?: readonly ShardStatus[]
  /**
   * The parts that could not be read: shards of a sharded queue, which the sums lack, or its head, without which its
   * shape is unknown; `queue`: the whole of a queue without shards. If nothing could be read, all counts are 0. Absent
   * if all could be read.
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

/** An unusual state of a queue. */
export interface Condition {
  readonly name: ConditionName
  /**
   * `error`: jobs do not depart, or depart wrongly. `warning`: a person should look. `note`: it is intended, or ends by
   * itself.
   */
  readonly level: 'error' | 'warning' | 'note'
  /** Why, without a full stop. */
  readonly text: string
  /** The next command or step; '' if there is none. */
  readonly next: string
  /** Greater for a more urgent condition: twice that of the next kind. Weights of several conditions add up. */
  readonly weight: number
}

/** A queue at one moment, and its conditions. */
export interface QueueStatus extends QueueFacts {
  /** Its conditions, the most urgent first; empty without any. */
  readonly conditions: readonly Condition[]
  /** Whether all waiting jobs belong to held groups: then it needs no worker. */
  readonly areAllHeld: boolean
}

/** A shard of a sharded queue: its part of the total, and its jobs. */
export interface ShardStatus {
  readonly shard: number
  /** By its lease; undefined if jobs are not paced, or not bounded. */
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
  /** The change: fields and values of the shape, or the details of the feedback. */
  readonly change: Readonly<Record<string, unknown>>
  /** The end of an override or a pause. */
  readonly until?: Date
}

/** The changes by `settleCost` of a departure's charge under a limit. */
export interface SettledLimit {
  /** Refunded units. */
  readonly refunded: number
  /** When it charged more, µs on Redis's clock. */
  readonly chargedUs: readonly number[]
}

/** A departure that `shape.audit` recorded. */
export interface AuditEntry {
  readonly jobId: string
  /** µs on Redis's clock. */
  readonly slotUs: number
  /** Its charge at the departure. */
  readonly cost: number
  /** The part that `settleCost` refunded to the rate; undefined if none. */
  readonly refunded?: number
  /** When it was granted, µs: up to one horizon before its slot. */
  readonly grantedUs: number
  /** For how long something other than a lack of workers had held the queue by then, µs. */
  readonly heldUs: number
  /** The bucket that granted it; undefined where none was enforced. */
  readonly intervalUs?: number
  readonly burst?: number
  /** Its charge under each limit at the departure, by name. */
  readonly limits: Readonly<Record<string, number>>
  /** The members of pools with which it departed, by the names of their limits; undefined if there are none. */
  readonly members?: Readonly<Record<string, string>>
  /** The changes of these by `settleCost`, by name; undefined if none. */
  readonly limitsSettled?: Readonly<Record<string, SettledLimit>>
  /** The group whose bucket granted it as well; undefined if it has none, or one without a rate. */
  readonly group?: {
    readonly id: string
    readonly intervalUs: number
    readonly burst: number
    /** The part that `settleCost` refunded to its rate. */
    readonly refunded?: number
  }
  /**
   * Its charges under the limits of its group and keys, by name; undefined if there are none. The id is '' without a
   * group.
   */
  readonly groupLimits?: {
    readonly id: string
    readonly taken: Readonly<Record<string, number>>
    /**
     * By the name of a limit that counts by other keys than the group: their values, each after its length if there are
     * several.
     */
    readonly values?: Readonly<Record<string, string>>
    /** As `limitsSettled`. */
    readonly settled?: Readonly<Record<string, SettledLimit>>
  }
  /** What limits allowed its keys or its member then, by name, where that is not what they allow all. */
  readonly limitRules?: Readonly<Record<string, ChargedRule>>
  /** When its processor was called, µs on Redis's clock as its worker estimates it; undefined where unreported. */
  readonly startedUs?: number
}

/** Of a bucket its interval and burst, of a window its limit. */
export interface ChargedRule {
  readonly intervalUs?: number
  readonly burst?: number
  /** Where its rate followed the clock, as the limits of a shape are stored. */
  readonly schedule?: LimitWire['schedule']
  readonly limit?: number
}

/** The group of a job, and how many of its jobs leave before that one. */
export interface GroupPlace extends GroupState {
  readonly ahead: number
}

/** The lane of a waiting job: the jobs of its group whose keys are equal. */
export interface LanePlace {
  /** Jobs of it that depart before this one. */
  readonly ahead: number
}

/** Why a job has not started, when it may, or what it waited for. */
export interface Explanation {
  readonly queue: string
  /** The shard of the job, if the queue is a sharded one: then positions and estimates apply to the shard. */
  readonly shard?: number
  readonly id: string
  readonly name: string
  readonly state: 'waiting' | 'prioritized' | 'delayed' | 'waiting-children' | 'active' | 'completed' | 'failed'
  readonly at: Date
  readonly addedAt: Date
  /** When it could have started: when it was added, its delay ended, or it went back for a retry. */
  readonly readyAt: Date
  /** When it last departed; undefined while it waits. */
  readonly startedAt: Date | undefined
  readonly cost: number
  /** What it costs in other units, by their names; undefined where it names none. */
  readonly costs: Readonly<Record<string, number>> | undefined
  /** Why it was last throttled, and why an attempt last failed. */
  readonly throttledFor: string | undefined
  readonly failedReason: string | undefined
  /** The hold of a ready job; `since` is never before that. */
  readonly hold: Hold | undefined
  /** How many jobs of the queue may run at once, and why; undefined without a limit. */
  readonly concurrency: ConcurrencyState | undefined
  /** Its group and its place there; undefined for a job without one, or one that does not wait. */
  readonly group: GroupPlace | undefined
  /** The keys that limits with `by` count, besides its group; undefined if it has none. */
  readonly keys: Readonly<Record<string, string>> | undefined
  /** Its place among the jobs of its group with equal values; undefined if it does not wait, or no limit has keys. */
  readonly lane: LanePlace | undefined
  /** The jobs that hold the places of its group, if all of these are taken; otherwise none. */
  readonly holders: readonly GroupHolder[]
  /** Jobs that depart before it. */
  readonly ahead: number | undefined
  /**
   * Whether there may be more: of a long list only 10,000 jobs at each end are searched, of more than a hundred groups in
   * line only the first hundred are counted, and of a job whose lane waits for a limit only those of its lane. Then it starts no sooner than `startsAt`, unless
   * settled costs give units back.
   */
  readonly isAheadAtLeast: boolean
  readonly startsAt: Date | undefined
  /** The assumptions of the estimate, one sentence each. */
  readonly assumptions: readonly string[]
  /** From `readyAt` to its start, or to now; the parts add up to it. */
  readonly waitedMs: number
  readonly parts: HeldMs
}
