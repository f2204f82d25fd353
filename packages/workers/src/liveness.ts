import { countText } from 'sluice/internal'

/** The state of the queue, as far as the liveness of a worker depends on it. */
export interface QueueFacts {
  /** Jobs that BullMQ would let start now (waiting and prioritized; not delayed). */
  readonly waiting: number
  /** Whether the queue or its meter is paused. */
  readonly paused: boolean
  /** Whether the jobs running on all workers have reached the concurrency of the queue. */
  readonly full: boolean
  /** Milliseconds between departures of cost 1 at the current rate; 0 when nothing is paced. */
  readonly intervalMs: number
  /** Units of cost that the bucket holds. */
  readonly burst: number
}

/** The input of a liveness check. */
export interface Observation {
  /** Undefined when Redis did not answer. */
  readonly queue: QueueFacts | undefined
  /** When a job last started or finished in this process, on the same clock as `nowMs`. */
  readonly lastProgressMs: number
  readonly nowMs: number
}

/** Since when work has been waiting that this worker could do; undefined while there is none. */
export interface LivenessState {
  readonly expectedSinceMs: number | undefined
}

export interface LivenessVerdict {
  readonly live: boolean
  readonly reason: string
  readonly state: LivenessState
}

export const INITIAL_LIVENESS: LivenessState = { expectedSinceMs: undefined }

// Workers share the departures. Within this many of them, every worker has had its turn or is stuck.
const DEPARTURES_PER_TURN = 100

/**
 * Judges whether a worker makes progress while work waits.
 *
 * It is dead only when, for long enough, jobs waited that were free to start, Redis answered, and still no job started
 * or finished in this process. An unavailable Redis is no reason to restart a worker, and time without Redis does not
 * count.
 *
 * Long enough is `stallTimeoutMs`, or the time within which the meter must have given this worker a turn, if that is
 * longer: whatever held departures (an expensive job, a bucket that was filled after a loss), the meter releases a job
 * within `burst` intervals, unless paused.
 */
export function judgeLiveness(
  previous: LivenessState,
  observation: Observation,
  stallTimeoutMs: number,
): LivenessVerdict {
  const { queue, lastProgressMs, nowMs } = observation
  const excuse = excuseOf(queue)
  if (queue === undefined || excuse !== undefined) {
    return { live: true, reason: excuse ?? '', state: INITIAL_LIVENESS }
  }
  const expectedSinceMs = previous.expectedSinceMs ?? nowMs
  const idleMs = nowMs - Math.max(expectedSinceMs, lastProgressMs)
  const limitMs = Math.max(stallTimeoutMs, queue.intervalMs * (queue.burst + DEPARTURES_PER_TURN))
  const live = idleMs < limitMs
  const reason = live
    ? 'working'
    : `${countText(queue.waiting, 'job')} waiting and none started or finished here for ${idleMs} ms`
  return { live, reason, state: { expectedSinceMs } }
}

function excuseOf(queue: QueueFacts | undefined): string | undefined {
  if (queue === undefined) return 'Redis does not answer'
  if (queue.waiting === 0) return 'nothing waits'
  if (queue.paused) return 'paused'
  return queue.full ? 'the concurrency limit is reached' : undefined
}
