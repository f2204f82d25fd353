import {
  CannotStartInTimeError,
  CostTooHighError,
  GroupFullError,
  IdempotencyConflictError,
  InvalidDeadlineError,
  KeyInUseError,
  NoGroupsError,
  QueueFullError,
  QueueUnavailableError,
  ScheduleClosedError,
  type SluiceError,
  TooLargeError,
  TooManyKeysError,
} from '../errors.ts'

/** Position and start of an admitted job; unknown values are undefined. */
export interface AdmissionEstimate {
  /** Jobs ahead of it; undefined for one that is delayed, ended already, or waits for its children. */
  readonly position: number | undefined
  /** Estimated with the mean cost of the jobs ahead of it. */
  readonly startsAt: Date | undefined
}

/** The statuses of `lua/admission/admission.lua`. */
const LOST = -1
const FULL = -2
const COST = -3
const LARGE = -4
const LATE = -5
const DEADLINE = -6
/** Statuses of `lua/groups/admission.lua`. */
const NO_GROUPS = -7
const GROUP_FULL = -8
const TOO_MANY_KEYS = -13
const KEY_IN_USE = -14
const OTHER_REQUEST = -10
/** Statuses of `lua/admission/sent-again.lua`. */
const UNKNOWN = -11

/** The latest time that a Date holds. */
const MAX_DATE_MS = 8_640_000_000_000_000

type Raw = readonly unknown[]

/** Whether Redis lost the shape known to this process. */
export function isLost(raw: Raw): boolean {
  return raw[0] === LOST
}

/** The typed error of a refusal, or undefined if the reply is not one. */
export function refusalOf(raw: Raw, queueName: string): SluiceError | undefined {
  const detail = (raw[1] as readonly (string | number)[]) ?? []
  switch (raw[0]) {
    case FULL:
      return new QueueFullError(queueName, fullOf(detail))
    case GROUP_FULL:
      return new GroupFullError(queueName, String(detail[5]), fullOf(detail))
    case TOO_MANY_KEYS:
      return new TooManyKeysError(queueName, String(detail[0]), JSON.parse(String(detail[1])), Number(detail[2]))
    case KEY_IN_USE:
      return keyInUseOf(detail, queueName)
    case NO_GROUPS:
      return new NoGroupsError(queueName)
    case COST:
      return costOf(detail)
    case LARGE:
      return largeOf(detail, queueName)
    case LATE:
      return lateOf(detail, queueName)
    case DEADLINE:
      return missedOf(detail)
    case UNKNOWN:
      return new QueueUnavailableError(queueName, 'the connection was lost before the reply, and for too long', true)
    case OTHER_REQUEST:
      return new IdempotencyConflictError(queueName)
    default:
      return undefined
  }
}

/** @param detail the number of jobs, the exceeded capacity, and the group if it is a group's */
function largeOf([jobs, capacity, groupId]: readonly (string | number)[], queueName: string): TooLargeError {
  const what = groupId === undefined ? {} : { groupId: String(groupId) }
  return new TooLargeError(queueName, Number(jobs), Number(capacity), what)
}

/** @param detail the limit, its keys, and the existing job with these, '' if it belongs to the same call */
function keyInUseOf([limit, keys, jobId]: readonly (string | number)[], queueName: string): KeyInUseError {
  return new KeyInUseError(queueName, String(limit), JSON.parse(String(keys)), jobId === '' ? undefined : String(jobId))
}

function fullOf(detail: readonly (string | number)[]) {
  return {
    retryAfterMs: Number(detail[0]),
    depth: Number(detail[1]),
    capacity: Number(detail[2]),
    paused: detail[3] === '1',
    needed: Number(detail[4]),
  }
}

/** @param detail the cost, the burst, and the group if it is a group's */
function costOf([cost, burst, groupId]: readonly (string | number)[]): CostTooHighError {
  return new CostTooHighError(
    Number(cost),
    Number(burst),
    undefined,
    groupId === undefined ? undefined : String(groupId),
  )
}

/** @param detail the deadline, Redis's time, and the delay of the job, ms */
function missedOf(detail: readonly (string | number)[]): InvalidDeadlineError {
  const [deadlineMs, nowMs, delayMs] = detail.map(Number) as [number, number, number]
  const got = Number.isNaN(new Date(deadlineMs).getTime()) ? `${deadlineMs}` : new Date(deadlineMs).toISOString()
  return new InvalidDeadlineError(
    deadlineMs < nowMs
      ? `mustStartBefore must be in the future; got ${got}, which is ${nowMs - deadlineMs} ms ago`
      : `mustStartBefore must not lie before the end of the delay, ${delayMs} ms from now; got ${got}`,
  )
}

function lateOf(detail: readonly (string | number)[], queueName: string): CannotStartInTimeError {
  const [retryAfterMs, depth, capacity, paused, start, maxWaitMs, deadlineMs, closed, limit] = detail
  const late = {
    startsAt: new Date(Math.min(Number(start) / 1000, MAX_DATE_MS)),
    retryAfterMs: Number(retryAfterMs),
    maxWaitMs: numberIn(maxWaitMs),
    mustStartBefore: deadlineMs === '' ? undefined : new Date(Number(deadlineMs)),
    depth: Number(depth),
    capacity: numberIn(capacity),
    paused: paused === '1',
  }
  if (closed === undefined) return new CannotStartInTimeError(queueName, late)
  const nameIn = (text: string | number | undefined) => (text === '' || text === undefined ? undefined : String(text))
  return new ScheduleClosedError(queueName, late, nameIn(closed), nameIn(limit))
}

function numberIn(text: string | number | undefined): number | undefined {
  return text === '' || text === undefined ? undefined : Number(text)
}

/** @param at index of the position; the start follows it */
export function readEstimate(raw: Raw, at = 4): AdmissionEstimate {
  const position = raw[at]
  const start = raw[at + 1]
  return {
    position: position === '' || position === undefined ? undefined : Number(position),
    startsAt: start === '' || start === undefined ? undefined : new Date(Number(start) / 1000),
  }
}
