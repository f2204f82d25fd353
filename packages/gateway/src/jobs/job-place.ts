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

/** What `lua/views/job.lua` returns for a place: position and start, µs, are '' where unknown. */
export interface PlaceView {
  readonly state: JobState
  readonly position: number | ''
  readonly start: string
}

/** undefined if there is no such job. */
export function readPlace(view: PlaceView | undefined): JobPlace | undefined {
  if (!view) return undefined
  return {
    state: view.state,
    position: view.position === '' ? undefined : view.position,
    startsAt: view.start === '' ? undefined : new Date(Number(view.start) / 1000),
  }
}

/** Whether nothing more will happen to a job by itself. */
export function hasEnded(state: JobState): state is 'completed' | 'failed' {
  return state === 'completed' || state === 'failed'
}
