import type { ShapedJobsOptions } from '../admission/job-options.ts'
import type { HeldJob } from '../departure/held-job.ts'
import { uniqueId } from '../redis/ids.ts'
import type { ShapeStore } from '../shape/store.ts'
import type { Scope, Source } from './feedback.ts'
import type { OkCount } from './ok-reports.ts'
import type { EncodedAdapt } from './options.ts'
import type { Found } from './source.ts'

/** A change of the queue's state, and its cause. */
export interface FeedbackChange {
  /**
   * `slow` and `rise` change the rate, `quota` paces the rest of a quota, `resumed` ends the probing after a hard
   * pause.
   */
  readonly kind: 'pause' | 'slow' | 'rise' | 'quota' | 'concurrency' | 'resumed'
  /** A group by its id; for a limit with `by`, one value of its keys; for a pool, a member. */
  readonly scope:
    | Exclude<Scope, 'group'>
    | { readonly limit: string; readonly keys: Readonly<Record<string, string>> }
    | { readonly limit: string; readonly member: string }
  readonly source: Source
  readonly reason: string
  /** The worker that received the answer. */
  readonly by: string
  readonly at: Date
  /** The new and the previous rate, units of cost per second. */
  readonly rate?: number
  readonly from?: number
  /** The limit of running jobs. */
  readonly limit?: number
  /** When it ends automatically. */
  readonly until?: Date
  /** Whether one job probes before others follow. */
  readonly hard?: boolean
}

/** Result of applying feedback. */
export interface FeedbackReply {
  readonly changes: readonly FeedbackChange[]
  /** How often the job was throttled so far; 0: it no longer belongs to the caller. */
  readonly throttled: number
  /** Whether it is back in the wait list. */
  readonly back: boolean
  /** It keeps being refused while others succeed, so an attempt is used up. */
  readonly usesAttempt: boolean
  /** It was throttled for its whole time (`giveUpAfterMs`). */
  readonly isGivenUp: boolean
  /** Delay until it is retried, ms; 0: it is back, or the caller knows the time. */
  readonly afterMs: number
}

/** The input of one call of `lua/verbs/apply-feedback.lua`. */
export interface FeedbackRequest {
  readonly found: readonly Found[]
  /** When the answered call departed, µs on Redis's clock. */
  readonly sentUs: number
  readonly by: string
  readonly adapt: EncodedAdapt | undefined
  /** Successful calls since the last report. */
  readonly oks: number
  /** When the last successful call departed, µs; undefined if there is none. */
  readonly okUs?: number | undefined
  /** How long ago the last of them ended, ms. */
  readonly okAgoMs?: number | undefined
  /** The group of the job. */
  readonly group?: string | undefined
  /** The job's keys, if a finding is about a limit. */
  readonly keys?: ShapedJobsOptions['keys']
  readonly members?: Readonly<Record<string, string>> | undefined
  readonly tier?: string | undefined
  /** Successful calls of the group or limit value of the refusal, since the last report about it. */
  readonly calls?: OkCount | undefined
  readonly job?: RefusedJob
}

/** A refused job. */
export interface RefusedJob {
  readonly held: HeldJob
  /** The answer gives no time for the retry. */
  readonly head: boolean
  /** It fails once it has been throttled for this long, ms. */
  readonly giveUpAfterMs: number
  /** Reason to store, if any. */
  readonly reason?: string
  /** The answer asks for a retry of this job. */
  readonly retried: boolean
  readonly target?: RefusedTarget | undefined
}

/** Target of a refused call, and when the last successful call departed to it, and to any other target (µs). */
export interface RefusedTarget {
  readonly id: string
  readonly sameUs: number | undefined
  readonly othersUs: number | undefined
}

/** ms; their use: docs/feedback.md. */
const LIMITS = {
  pauseMs: 1000,
  maxBackoffMs: 900_000,
  maxSlowPauseMs: 10_000,
  maxDownMs: 30_000,
  maxPauseMs: 86_400_000,
  jitterMs: 5000,
  probeMs: 10_000,
  slowStartMs: 60_000,
  slowMs: 600_000,
  quietMs: 10_000,
}

/** The first argument of `lua/verbs/apply-feedback.lua`: a resent call takes effect once. */
export function encodeFeedbackRequest(request: FeedbackRequest): string {
  const { found, sentUs, by, adapt, oks, okUs, okAgoMs, group, keys, tier, members, calls, job } = request
  const call = {
    call: uniqueId(),
    found: found.map(({ feedback, rule }) => ({ feedback, rule: rule?.id, trigger: rule?.trigger })),
    sent: sentUs.toFixed(0),
    by,
    jitter: Math.random(),
    oks,
    ok_at: wholeMs(okUs),
    ok_ago: okAgoMs,
    group,
    keys,
    tier,
    members,
    calls: calls && { oks: calls.count, ok_at: wholeMs(calls.lastUs), ok_ago: calls.agoMs },
    limits: LIMITS,
    adapt,
    job: job && encodeJob(job),
  }
  // Redis's JSON parser rejects a lone surrogate, as in a text that was cut.
  return JSON.stringify(call, (_, value: unknown) =>
    typeof value === 'string' ? value.replace(/\p{Surrogate}/gu, '\ufffd') : value,
  )
}

function encodeJob({ held, target, giveUpAfterMs, ...job }: RefusedJob) {
  const { id, token, score } = held
  const { id: name, sameUs, othersUs } = target ?? {}
  return {
    id,
    token,
    score,
    ...job,
    give_up_ms: giveUpAfterMs,
    target: name,
    same: wholeMs(sameUs),
    others: wholeMs(othersUs),
  }
}

function wholeMs(us: number | undefined): number | undefined {
  return us === undefined ? undefined : Math.floor(us / 1000)
}

/** Decodes a change from scripts and BullMQ events. */
export function decodeFeedbackChange(stored: Record<string, unknown>): FeedbackChange {
  const { at, until, rate, from, ...rest } = stored as Record<string, number>
  return {
    ...(rest as unknown as Omit<FeedbackChange, 'at'>),
    at: new Date(at as number),
    ...(until === undefined ? {} : { until: new Date(until) }),
    ...(rate === undefined ? {} : { rate: Number(rate) }),
    ...(from === undefined ? {} : { from: Number(from) }),
  }
}

/**
 * Applies feedback to the queue of a store.
 * @param request made by {@link encodeFeedbackRequest}
 */
export async function applyFeedback(store: ShapeStore, request: string): Promise<FeedbackReply> {
  const [, , ...reply] = await store.change('apply-feedback', [request])
  return readFeedbackReply(reply)
}

/** @param raw the script's reply after the shape */
export function readFeedbackReply([changes, throttled, code]: readonly unknown[]): FeedbackReply {
  // Lua encodes an empty table as a JSON object.
  const stored = JSON.parse(changes as string) as Record<string, unknown>[]
  return {
    changes: Array.isArray(stored) ? stored.map(decodeFeedbackChange) : [],
    throttled: Number(throttled),
    back: code === -1,
    usesAttempt: code === -2,
    isGivenUp: code === -3,
    afterMs: Math.max(0, Number(code)),
  }
}
