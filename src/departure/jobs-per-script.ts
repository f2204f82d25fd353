import type { StoredShape } from '../shape/stored.ts'

/**
 * How long a script that starts, ends or gives back jobs may keep Redis busy, µs of CPU time: all other clients wait
 * meanwhile. Some calls take twice as long as most.
 */
const SCRIPT_US = 3000
/** The same for starts under a rate alone: only a distant worker asks for so many, and its rate depends on them. */
const DISTANT_US = 4200

/**
 * The share of one job on a machine with two cores, µs: its start, its end, its return, and more for features of its
 * shape, whose scripts are also longer: a connection sends the text of each once.
 */
const START_US = 35
const END_US = 25
const LIMITS_US = 30
const GROUPS_US = 42
const AGEING_US = 40
const RETURN_US = 25
const GROUP_RETURN_US = 60
/** Extra for a job of a group if the shape has limits, and if its jobs age. */
const RETURN_MORE_US = 15

function startUs(shape: StoredShape | undefined): number {
  if (!shape) return START_US
  return START_US + (shape.isLimited ? LIMITS_US : 0) + (shape.hasGroups ? GROUPS_US : 0) + (shape.ages ? AGEING_US : 0)
}

/** @returns how many jobs one script should start at most */
export function mostStarted(shape: StoredShape | undefined): number {
  const us = startUs(shape)
  return Math.floor((us === START_US ? DISTANT_US : SCRIPT_US) / us)
}

/** @returns how many jobs one script should end at most, where each end also starts a job */
export function mostEnded(shape: StoredShape | undefined): number {
  return Math.floor(SCRIPT_US / (END_US + startUs(shape)))
}

function returnUs(shape: StoredShape | undefined): number {
  if (!shape?.hasGroups) return RETURN_US
  return GROUP_RETURN_US + (shape.isLimited ? RETURN_MORE_US : 0) + (shape.ages ? RETURN_MORE_US : 0)
}

/** @returns how many jobs one script should give back at most */
export function mostGivenBack(shape: StoredShape | undefined): number {
  return Math.floor(SCRIPT_US / returnUs(shape))
}
