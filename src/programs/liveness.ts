/** A look at the queue, as far as judging a worker needs it. */
export interface QueueFacts {
  /** Jobs that could start now as far as BullMQ is concerned (waiting and prioritized; not delayed). */
  readonly waiting: number
  /** The queue is paused or its meter is. */
  readonly paused: boolean
  /** All jobs that may run at once, over all workers, are running. */
  readonly full: boolean
  /** Milliseconds between departures of cost 1 at the present rate; 0 when nothing is paced. */
  readonly intervalMs: number
  /** Units of cost that the bucket holds. */
  readonly burst: number
}

/** What is known when a health question is asked. */
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

// Other workers share the departures. Within a hundred of them every worker had its turn, or is stuck.
const DEPARTURES_PER_TURN = 100

/**
 * Judges whether a worker does work while work waits.
 *
 * It is dead only when, for long enough, jobs waited that were free to start, Redis answered, and still no job started
 * or finished in this process. Redis being gone is no reason to restart a worker, and time without Redis does not count.
 *
 * Long enough is `stallTimeoutMs`, or, where that takes longer, the time in which the meter must have given this worker
 * a turn: however it was closed (an expensive job, a bucket that was filled after a loss), unless paused it opens within
 * `burst` intervals.
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
  const reason = live ? 'working' : `${queue.waiting} jobs wait and none started or finished here for ${idleMs} ms`
  return { live, reason, state: { expectedSinceMs } }
}

function excuseOf(queue: QueueFacts | undefined): string | undefined {
  if (queue === undefined) return 'Redis does not answer'
  if (queue.waiting === 0) return 'nothing waits'
  if (queue.paused) return 'paused'
  return queue.full ? 'as many jobs run as may' : undefined
}
