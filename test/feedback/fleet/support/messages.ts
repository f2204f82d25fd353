import type { Rule } from '../../../../src/egress/index.ts'
import type { FeedbackChange } from '../../../../src/index.ts'

/** In which form a library hands on what came. */
export type Form = 'response' | 'data' | 'octokit' | 'stripe' | 'openai' | 'aws'

/** What a worker does with its jobs. */
export type Task =
  | { readonly kind: 'http'; readonly url: string; readonly form: Form }
  | { readonly kind: 'email'; readonly url: string }
  | { readonly kind: 'write'; readonly url: string; readonly poolSize: number; readonly sql: string }

/** A worker to be opened in a process. */
export interface Opening {
  readonly queue: string
  readonly task: Task
  /** The name of a profile. */
  readonly profile: string
  /** Asked before the profile's own. */
  readonly rules?: readonly Rule[]
  readonly concurrency: number
  readonly allowUnshaped?: boolean
}

/** What a process of the fleet is told. */
export type Command =
  | { readonly do: 'open'; readonly opening: Opening }
  | { readonly do: 'close'; readonly queue: string }
  | { readonly do: 'stop' }

/** A job that was started. Times are µs on Redis's clock. */
export interface Start {
  readonly queue: string
  readonly jobId: string
  readonly slotUs: number
  readonly departedAtUs: number
}

/** A job that has completed or failed. */
export interface End {
  readonly queue: string
  readonly jobId: string
  readonly attemptsMade: number
  /** undefined: it completed. */
  readonly failedReason?: string
}

/** What it tells, in the order in which it happened there. */
export type Message =
  | { readonly type: 'ready' }
  | { readonly type: 'opened'; readonly queue: string }
  | { readonly type: 'closed'; readonly queue: string }
  | ({ readonly type: 'start' } & Start)
  | ({ readonly type: 'end' } & End)
  | { readonly type: 'change'; readonly queue: string; readonly change: Told }
  | { readonly type: 'error'; readonly queue: string; readonly message: string }

/** A change, as it comes through JSON. */
export type Told = Omit<FeedbackChange, 'at' | 'until'> & { readonly at: string; readonly until?: string }
