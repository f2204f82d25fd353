import type { Cell } from './cell.ts'
import { agedKeyUs, headOf, type Job } from './job.ts'
import type { Ticket } from './line.ts'

/** What a job needs of a cell, always more than 0. */
export interface Need {
  readonly cell: Cell
  readonly cost: number
  /** Of the job. */
  readonly tier: string | undefined
}

/**
 * The jobs of one group with equal values of all keys that limits name.
 *
 * Decision: the lanes of a group take turns by numbers, of the same series as those of jobs. A lane has that of its first job,
 * and gets the next one when it is served; it keeps it while it is held, and the lowest goes first. With tags that count jobs,
 * a lane that has been served once would be as far back as the second of many that came together; and of equal tags, names
 * would decide.
 */
export interface Lane {
  readonly id: string
  readonly group: string
  /** The parts of its id: what all of its jobs have in common. */
  readonly parts: readonly string[]
  readonly jobs: Job[]
  turn: number
  /**
   * `unseen`: in BullMQ's wait list, where the next call that takes a job finds it. `ready`: its group may take it. `line`: it
   * stands in a line. `until`: without lines, it waits for a time.
   */
  state: 'unseen' | 'ready' | 'line' | 'until'
  untilUs: number
  ticket: Ticket | undefined
}

const BAND = 2 ** 32

/**
 * Strict priority between the lanes of a group, then turns; with ageing the aged key of the first job alone.
 * @returns compares two lanes
 */
export function byRank(ageingMs: number | undefined): (one: Lane, other: Lane) => number {
  const rank = (lane: Lane): number => {
    const head = headOf(lane.jobs, ageingMs) as Job
    return ageingMs === undefined ? head.priority * BAND + lane.turn : agedKeyUs(head, ageingMs)
  }
  return (one, other) => rank(one) - rank(other) || (one.id < other.id ? -1 : 1)
}
