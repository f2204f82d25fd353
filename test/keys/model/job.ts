export interface Job {
  readonly id: string
  /** '' for none. */
  readonly group: string
  readonly keys: Readonly<Record<string, string>>
  readonly cost: number
  readonly costs?: Readonly<Record<string, number>>
  /** Which of the tiers of limits applies to it. */
  readonly tier?: string
  readonly priority: number
  /** In the order in which jobs were added; a job that goes back keeps it. */
  readonly number: number
  /** Since when it waits. */
  readonly sinceUs: number
}

/** When a job counts as waiting since, among those of all priorities. */
export function agedKeyUs({ sinceUs, priority }: Job, ageingMs: number): number {
  return sinceUs + priority * ageingMs * 1000
}

/** The job of one line that leaves next: with ageing the first by its aged key among the first of each priority. */
export function headOf(jobs: readonly Job[], ageingMs: number | undefined): Job | undefined {
  if (ageingMs === undefined) return jobs[0]
  const firsts = jobs.filter((job, i) => job.priority !== jobs[i - 1]?.priority)
  return firsts.toSorted((one, other) => agedKeyUs(one, ageingMs) - agedKeyUs(other, ageingMs))[0]
}

/** Puts a job among those that wait, in their order. */
export function insertInto(jobs: Job[], job: Job): void {
  jobs.push(job)
  jobs.sort((a, b) => a.priority - b.priority || a.number - b.number)
}
