/** Where a job is. */
export interface JobPlace {
  readonly state: JobState
  /** Jobs ahead of it; undefined if unknown. */
  readonly position: number | undefined
  /** When it will start, with the mean cost of the jobs ahead of it; undefined if unknown. */
  readonly startsAt: Date | undefined
}

export const JOB_STATES = [
  ...['waiting', 'prioritized', 'delayed', 'waiting-children'],
  ...['active', 'completed', 'failed'],
] as const
export type JobState = 'waiting' | 'prioritized' | 'delayed' | 'waiting-children' | 'active' | 'completed' | 'failed'

/** The result of removing a job. */
export type Removal = 'removed' | 'unknown' | 'running' | 'ended' | 'scheduled'

const REMOVALS: Readonly<Record<number, Removal>> = {
  1: 'removed',
  0: 'unknown',
  [-1]: 'running',
  [-2]: 'ended',
  [-3]: 'scheduled',
}

/** Reads the reply of `lua/verbs/locate-job.lua`; undefined if there is no such job. */
export function readPlace(raw: unknown): JobPlace | undefined {
  const [state, position, startUs] = raw as readonly [JobState | '', number | string, string]
  if (state === '') return undefined
  return {
    state,
    position: position === '' ? undefined : Number(position),
    startsAt: startUs === '' ? undefined : new Date(Number(startUs) / 1000),
  }
}

/** Reads the reply of `lua/verbs/remove-waiting.lua`. */
export function readRemoval(raw: unknown): Removal {
  return REMOVALS[Number(raw)] as Removal
}

/** Whether nothing more will happen to a job by itself. */
export function hasEnded(state: JobState): state is 'completed' | 'failed' {
  return state === 'completed' || state === 'failed'
}
