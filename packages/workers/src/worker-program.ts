import type { Job } from 'bullmq'
import type { BatchOptions, FeedbackSource } from 'sluice'
import type { Logger, SettingTable } from 'sluice-programs'
import type { CommonSettings } from './common-settings.ts'

/** The destination of a program's jobs, opened and checked. */
export interface Destination {
  process(job: Job): Promise<unknown>
  /** Runs batches of jobs instead, each of which has its own end. Default: each job is processed alone. */
  readonly batches?: BatchOptions & { process(jobs: readonly Job[]): Promise<readonly PromiseSettledResult<unknown>[]> }
  /** How the worker learns of the destination's answers. */
  readonly feedback: FeedbackSource
  /** Closes connections; called after the last job. */
  close(): Promise<void>
}

/** What distinguishes one worker program from another. */
export interface WorkerProgram<S extends CommonSettings = CommonSettings> {
  /** Short name, such as `email`. */
  readonly name: string
  /** One sentence for `--help`. */
  readonly purpose: string
  /** What a producer puts into a job; lines for `--help`. */
  readonly jobFormat: string
  /** Every setting, common ones included; reading it gives an `S`. */
  readonly settings: SettingTable
  /**
   * Checks that involve several settings, before anything is opened.
   * @throws SettingsError
   */
  check?(settings: S): Promise<void>
  /**
   * Opens the destination and checks that it answers.
   * @throws StartError naming what is missing.
   */
  open(settings: S, log: Logger): Promise<Destination>
}
